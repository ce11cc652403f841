/* The load: an org.bluez with one adapter and many devices, on the bus of DBUS_SYSTEM_BUS_ADDRESS. It is to cost next
 * to nothing, so each signal is marshalled once by libdbus, and only stamped and written for each message.
 *
 *     bluez DEVICES         the first 20 can be connected to; each has the characteristic fff0/fff1
 *
 * Standard input, one command a line:
 *     advertise RATE COUNT PHASE    RATE 0: as fast as the bus takes them
 *     notify RATE COUNT PHASE       of the notifying characteristics in turn
 *     hum RATE                      advertisements in the background while someone discovers; 0 ends them */
#include "bench.h"
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define ADAPTER_PATH "/org/bluez/hci0"
#define UUID(short) "0000" short "-0000-1000-8000-00805f9b34fb"
#define CONNECTABLE 20
#define BATCH 32

typedef DBusMessageIter Iter;

/* A signal as it stands on the wire, and where its stamp and its RSSI are. */
typedef struct {
    char *bytes;
    int size, stamp, rssi;
} Template;

typedef struct {
    Template advertisement, value;
    bool connected, signals;
    int socket;
} Device;

static DBusConnection *bus;
static Device *devices;
static int device_count, connected_count, notifying_count;
static bool discovering;

/* The run that is under way. */
static struct {
    bool active, notifications;
    double rate;
    uint64_t start, sent, count, late;
    int phase;
} job;
static double hum_rate;
static uint64_t hum_next;

static void path_of(char *to, int device, const char *rest) {
    sprintf(to, ADAPTER_PATH "/dev_C0_FE_00_%02X_%02X_%02X%s", device >> 16 & 255, device >> 8 & 255, device & 255,
            rest);
}

/* The device of a path, or -1. `rest` is what follows. */
static int device_of(const char *path, const char **rest) {
    unsigned a, b, c;
    int length = 0;
    if (sscanf(path, ADAPTER_PATH "/dev_C0_FE_00_%2X_%2X_%2X%n", &a, &b, &c, &length) < 3 || !length) return -1;
    int device = (int)(a << 16 | b << 8 | c);
    *rest = path + length;
    return device < device_count ? device : -1;
}

/* ---- values */

static void open_property(Iter *dictionary, Iter *entry, Iter *variant, const char *name, const char *signature) {
    dbus_message_iter_open_container(dictionary, DBUS_TYPE_DICT_ENTRY, NULL, entry);
    dbus_message_iter_append_basic(entry, DBUS_TYPE_STRING, &name);
    dbus_message_iter_open_container(entry, DBUS_TYPE_VARIANT, signature, variant);
}

static void close_property(Iter *dictionary, Iter *entry, Iter *variant) {
    dbus_message_iter_close_container(entry, variant);
    dbus_message_iter_close_container(dictionary, entry);
}

static void put(Iter *dictionary, const char *name, const char *signature, const void *value) {
    Iter entry, variant;
    open_property(dictionary, &entry, &variant, name, signature);
    dbus_message_iter_append_basic(&variant, signature[0], value);
    close_property(dictionary, &entry, &variant);
}

static void put_text(Iter *dictionary, const char *name, const char *value) { put(dictionary, name, "s", &value); }
static void put_path(Iter *dictionary, const char *name, const char *value) { put(dictionary, name, "o", &value); }
static void put_flag(Iter *dictionary, const char *name, bool value) {
    dbus_bool_t flag = value;
    put(dictionary, name, "b", &flag);
}

static void append_bytes(Iter *to, const uint8_t *bytes, int count) {
    Iter array;
    dbus_message_iter_open_container(to, DBUS_TYPE_ARRAY, "y", &array);
    dbus_message_iter_append_fixed_array(&array, DBUS_TYPE_BYTE, &bytes, count);
    dbus_message_iter_close_container(to, &array);
}

static void put_texts(Iter *dictionary, const char *name, const char **texts) {
    Iter entry, variant, array;
    open_property(dictionary, &entry, &variant, name, "as");
    dbus_message_iter_open_container(&variant, DBUS_TYPE_ARRAY, "s", &array);
    for (; *texts; texts++) dbus_message_iter_append_basic(&array, DBUS_TYPE_STRING, texts);
    dbus_message_iter_close_container(&variant, &array);
    close_property(dictionary, &entry, &variant);
}

/* A dictionary with one entry whose value is bytes: ManufacturerData and ServiceData. */
static void put_data(Iter *dictionary, const char *name, int key_type, const void *key, const uint8_t *bytes,
                     int count) {
    Iter entry, variant, inner, pair, value;
    const char *signature = key_type == DBUS_TYPE_UINT16 ? "a{qv}" : "a{sv}";
    open_property(dictionary, &entry, &variant, name, signature);
    dbus_message_iter_open_container(&variant, DBUS_TYPE_ARRAY, signature + 1, &inner);
    dbus_message_iter_open_container(&inner, DBUS_TYPE_DICT_ENTRY, NULL, &pair);
    dbus_message_iter_append_basic(&pair, key_type, key);
    dbus_message_iter_open_container(&pair, DBUS_TYPE_VARIANT, "ay", &value);
    append_bytes(&value, bytes, count);
    dbus_message_iter_close_container(&pair, &value);
    dbus_message_iter_close_container(&inner, &pair);
    dbus_message_iter_close_container(&variant, &inner);
    close_property(dictionary, &entry, &variant);
}

static void put_advertised(Iter *dictionary, int device, int16_t rssi) {
    uint8_t stamp[STAMP_SIZE];
    const uint8_t frame[6] = {0x40, 0x00, 0x12, 0x34, 0x56, (uint8_t)device};
    const uint16_t company = 0xffff;
    const char *uuid = UUID("fcd2");
    stamp_write(stamp, (Stamp){.device = (uint16_t)device});
    put(dictionary, "RSSI", "n", &rssi);
    put_data(dictionary, "ManufacturerData", DBUS_TYPE_UINT16, &company, stamp, STAMP_SIZE);
    if (device % 4 == 0) put_data(dictionary, "ServiceData", DBUS_TYPE_STRING, &uuid, frame, sizeof frame);
}

/* ---- objects */

static void put_adapter(Iter *to) {
    put_text(to, "Address", "00:1A:7D:DA:71:13");
    put_text(to, "AddressType", "public");
    put_text(to, "Name", "bench");
    put_text(to, "Alias", "bench");
    put_flag(to, "Powered", true);
    put_flag(to, "Discovering", discovering);
}

static void put_device(Iter *to, int device) {
    char path[64], address[18], name[32];
    path_of(path, device, "");
    snprintf(address, sizeof address, "%s", strstr(path, "dev_") + 4);
    for (char *c = address; *c; c++)
        if (*c == '_') *c = ':';
    snprintf(name, sizeof name, "bench %d", device);
    put_text(to, "Address", address);
    put_text(to, "AddressType", "random");
    put_text(to, "Name", name);
    put_text(to, "Alias", name);
    put_path(to, "Adapter", ADAPTER_PATH);
    put_flag(to, "Paired", false);
    put_flag(to, "Trusted", false);
    put_flag(to, "Blocked", false);
    put_flag(to, "Connected", devices[device].connected);
    put_flag(to, "ServicesResolved", devices[device].connected);
    put_texts(to, "UUIDs", (const char *[]){NULL});
    put_advertised(to, device, -60);
}

static void put_service(Iter *to, int device) {
    char path[64];
    path_of(path, device, "");
    put_text(to, "UUID", UUID("fff0"));
    put_path(to, "Device", path);
    put_flag(to, "Primary", true);
    put_texts(to, "Includes", (const char *[]){NULL});
}

static void put_characteristic(Iter *to, int device) {
    char path[96];
    uint16_t mtu = 247;
    path_of(path, device, "/service0010");
    put_text(to, "UUID", UUID("fff1"));
    put_path(to, "Service", path);
    put_texts(to, "Flags", (const char *[]){"read", "notify", NULL});
    put_flag(to, "Notifying", false);
    put_flag(to, "NotifyAcquired", false);
    put(to, "MTU", "q", &mtu);
}

/* `o a{sa{sv}}` with one interface. */
static void append_object(Iter *to, const char *path, const char *interface, void (*fill)(Iter *, int), int device) {
    Iter interfaces, entry, properties;
    dbus_message_iter_append_basic(to, DBUS_TYPE_OBJECT_PATH, &path);
    dbus_message_iter_open_container(to, DBUS_TYPE_ARRAY, "{sa{sv}}", &interfaces);
    dbus_message_iter_open_container(&interfaces, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    dbus_message_iter_append_basic(&entry, DBUS_TYPE_STRING, &interface);
    dbus_message_iter_open_container(&entry, DBUS_TYPE_ARRAY, "{sv}", &properties);
    fill(&properties, device);
    dbus_message_iter_close_container(&entry, &properties);
    dbus_message_iter_close_container(&interfaces, &entry);
    dbus_message_iter_close_container(to, &interfaces);
}

static void fill_adapter(Iter *to, int device) {
    (void)device;
    put_adapter(to);
}

static void append_managed(Iter *array, const char *path, const char *interface, void (*fill)(Iter *, int),
                           int device) {
    Iter entry;
    dbus_message_iter_open_container(array, DBUS_TYPE_DICT_ENTRY, NULL, &entry);
    append_object(&entry, path, interface, fill, device);
    dbus_message_iter_close_container(array, &entry);
}

static void append_all_objects(Iter *to) {
    Iter array;
    char path[64];
    dbus_message_iter_open_container(to, DBUS_TYPE_ARRAY, "{oa{sa{sv}}}", &array);
    append_managed(&array, ADAPTER_PATH, "org.bluez.Adapter1", fill_adapter, 0);
    for (int device = 0; device < device_count; device++) {
        path_of(path, device, "");
        append_managed(&array, path, "org.bluez.Device1", put_device, device);
    }
    dbus_message_iter_close_container(to, &array);
}

/* ---- signals */

static void post(DBusMessage *message) {
    dbus_connection_send(bus, message, NULL);
    dbus_message_unref(message);
}

static DBusMessage *begin_change(const char *path, const char *interface, Iter *message, Iter *properties) {
    DBusMessage *signal = dbus_message_new_signal(path, DBUS_INTERFACE_PROPERTIES, "PropertiesChanged");
    dbus_message_iter_init_append(signal, message);
    dbus_message_iter_append_basic(message, DBUS_TYPE_STRING, &interface);
    dbus_message_iter_open_container(message, DBUS_TYPE_ARRAY, "{sv}", properties);
    return signal;
}

static void end_change(Iter *message, Iter *properties) {
    Iter none;
    dbus_message_iter_close_container(message, properties);
    dbus_message_iter_open_container(message, DBUS_TYPE_ARRAY, "s", &none);
    dbus_message_iter_close_container(message, &none);
}

static void change_flag(const char *path, const char *interface, const char *name, bool value) {
    Iter message, properties;
    DBusMessage *signal = begin_change(path, interface, &message, &properties);
    put_flag(&properties, name, value);
    end_change(&message, &properties);
    post(signal);
}

static void added(const char *path, const char *interface, void (*fill)(Iter *, int), int device) {
    DBusMessage *signal = dbus_message_new_signal("/", "org.freedesktop.DBus.ObjectManager", "InterfacesAdded");
    Iter message;
    dbus_message_iter_init_append(signal, &message);
    append_object(&message, path, interface, fill, device);
    post(signal);
}

static char *marshal(DBusMessage *message, int *size) {
    char *bytes;
    dbus_message_set_serial(message, 1);
    if (!dbus_message_marshal(message, &bytes, size)) die("out of memory");
    dbus_message_unref(message);
    return bytes;
}

static DBusMessage *advertisement(int device, int16_t rssi) {
    char path[64];
    Iter message, properties;
    path_of(path, device, "");
    DBusMessage *signal = begin_change(path, "org.bluez.Device1", &message, &properties);
    put_advertised(&properties, device, rssi);
    end_change(&message, &properties);
    return signal;
}

static DBusMessage *value(int device) {
    char path[96];
    uint8_t stamp[STAMP_SIZE];
    Iter message, properties, entry, variant;
    path_of(path, device, "/service0010/char0011");
    stamp_write(stamp, (Stamp){.device = (uint16_t)device});
    DBusMessage *signal = begin_change(path, "org.bluez.GattCharacteristic1", &message, &properties);
    open_property(&properties, &entry, &variant, "Value", "ay");
    append_bytes(&variant, stamp, STAMP_SIZE);
    close_property(&properties, &entry, &variant);
    end_change(&message, &properties);
    return signal;
}

static void find_stamp(Template *template) {
    char *stamp = memmem(template->bytes, (size_t)template->size, STAMP_MAGIC, 4);
    if (!stamp) die("a message has no stamp");
    template->stamp = (int)(stamp - template->bytes);
}

static void make_templates(int device) {
    Template *template = &devices[device].advertisement;
    int size;
    template->bytes = marshal(advertisement(device, -1), &template->size);
    char *other = marshal(advertisement(device, -2), &size);
    while (template->rssi < size && template->bytes[template->rssi] == other[template->rssi]) template->rssi++;
    dbus_free(other);
    find_stamp(template);
    if (device >= CONNECTABLE) return;
    template = &devices[device].value;
    template->bytes = marshal(value(device), &template->size);
    find_stamp(template);
}

/* ---- calls */

static void connect_device(int device, DBusMessage *call) {
    char path[96];
    path_of(path, device, "");
    devices[device].connected = true;
    connected_count++;
    change_flag(path, "org.bluez.Device1", "Connected", true);
    path_of(path, device, "/service0010");
    added(path, "org.bluez.GattService1", put_service, device);
    path_of(path, device, "/service0010/char0011");
    added(path, "org.bluez.GattCharacteristic1", put_characteristic, device);
    path_of(path, device, "");
    change_flag(path, "org.bluez.Device1", "ServicesResolved", true);
    post(dbus_message_new_method_return(call));
    report("{\"event\":\"connected\",\"count\":%d,\"time\":%llu}", connected_count, (unsigned long long)now());
}

static void began_notifying(void) {
    notifying_count++;
    report("{\"event\":\"notifying\",\"count\":%d,\"time\":%llu}", notifying_count, (unsigned long long)now());
}

static void acquire_notify(int device, DBusMessage *call) {
    int ends[2];
    uint16_t mtu = 247;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends)) die("socketpair failed");
    DBusMessage *reply = dbus_message_new_method_return(call);
    dbus_message_append_args(reply, DBUS_TYPE_UNIX_FD, &ends[1], DBUS_TYPE_UINT16, &mtu, DBUS_TYPE_INVALID);
    close(ends[1]);
    devices[device].socket = ends[0];
    post(reply);
    began_notifying();
}

static void read_value(int device, DBusMessage *call) {
    static uint32_t reads;
    uint8_t stamp[STAMP_SIZE];
    Iter iter;
    DBusMessage *reply = dbus_message_new_method_return(call);
    stamp_write(stamp, (Stamp){now(), reads++, 0, (uint16_t)device});
    dbus_message_iter_init_append(reply, &iter);
    append_bytes(&iter, stamp, STAMP_SIZE);
    post(reply);
}

static void set_discovering(bool on, DBusMessage *call) {
    post(dbus_message_new_method_return(call));
    discovering = on;
    hum_next = now();
    change_flag(ADAPTER_PATH, "org.bluez.Adapter1", "Discovering", on);
}

static DBusHandlerResult handle(DBusConnection *connection, DBusMessage *call, void *data) {
    (void)connection, (void)data;
    if (dbus_message_get_type(call) != DBUS_MESSAGE_TYPE_METHOD_CALL) return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    const char *member = dbus_message_get_member(call), *rest = "";
    int device = device_of(dbus_message_get_path(call), &rest);
    bool is_characteristic = device >= 0 && device < CONNECTABLE && *rest;
    if (!strcmp(member, "GetManagedObjects")) {
        Iter iter;
        DBusMessage *reply = dbus_message_new_method_return(call);
        dbus_message_iter_init_append(reply, &iter);
        append_all_objects(&iter);
        post(reply);
    } else if (!strcmp(member, "StartDiscovery") || !strcmp(member, "StopDiscovery")) {
        set_discovering(member[2] == 'a', call);
    } else if (device >= 0 && device < CONNECTABLE && !*rest && !strcmp(member, "Connect")) {
        connect_device(device, call);
    } else if (is_characteristic && !strcmp(member, "AcquireNotify")) {
        acquire_notify(device, call);
    } else if (is_characteristic && !strcmp(member, "ReadValue")) {
        read_value(device, call);
    } else if (is_characteristic && !strcmp(member, "StartNotify")) {
        devices[device].signals = true;
        post(dbus_message_new_method_return(call));
        change_flag(dbus_message_get_path(call), "org.bluez.GattCharacteristic1", "Notifying", true);
        began_notifying();
    } else {
        post(dbus_message_new_method_return(call));
    }
    return DBUS_HANDLER_RESULT_HANDLED;
}

/* Lets libdbus read, answer and write, until it has nothing to do. Raw writes come between whole messages only. */
static void serve(void) {
    if (!dbus_connection_read_write(bus, 0)) exit(0);
    do { /* flushing reads too, and what it read shows on the descriptor no more */
        while (dbus_connection_dispatch(bus) == DBUS_DISPATCH_DATA_REMAINS) {}
        dbus_connection_flush(bus);
    } while (dbus_connection_get_dispatch_status(bus) == DBUS_DISPATCH_DATA_REMAINS);
}

/* ---- sending */

static void wait_for(int descriptor, short events) {
    struct pollfd request = {.fd = descriptor, .events = events};
    poll(&request, 1, 1000);
}

static void write_all(struct iovec *parts, int count) {
    int descriptor;
    dbus_connection_get_unix_fd(bus, &descriptor);
    while (count > 0) {
        ssize_t written = writev(descriptor, parts, count);
        if (written < 0 && errno != EAGAIN && errno != EINTR) exit(0); /* the bus is gone: so is the bench */
        if (written < 0) wait_for(descriptor, POLLOUT);
        for (; written > 0 && count > 0; parts++, count--) {
            size_t part = parts->iov_len < (size_t)written ? parts->iov_len : (size_t)written;
            parts->iov_base = (char *)parts->iov_base + part;
            parts->iov_len -= part;
            written -= (ssize_t)part;
            if (parts->iov_len) break;
        }
    }
}

static struct iovec stamped(Template *template, Stamp stamp) {
    static uint32_t serial = 0x40000000;
    serial++;
    memcpy(template->bytes + 8, &serial, 4);
    stamp_write((uint8_t *)template->bytes + template->stamp, stamp);
    if (template->rssi) template->bytes[template->rssi] = (char)(-50 - (int)(stamp.number % 16));
    return (struct iovec){template->bytes, (size_t)template->size};
}

/* Sends `count` advertisements from the job's place on, of different devices, by one call. */
static void send_advertisements(int count) {
    struct iovec parts[BATCH];
    for (int i = 0; i < count; i++) {
        uint32_t number = (uint32_t)job.sent++;
        int device = (int)(number % (uint32_t)device_count);
        Stamp stamp = {now(), number, (uint16_t)job.phase, (uint16_t)device};
        parts[i] = stamped(&devices[device].advertisement, stamp);
    }
    write_all(parts, count);
}

/* The next notification goes to the next device that notifies. */
static void send_notification(void) {
    static int device;
    do device = (device + 1) % CONNECTABLE;
    while (device >= device_count || (!devices[device].signals && devices[device].socket < 0));
    Stamp stamp = {now(), (uint32_t)job.sent++, (uint16_t)job.phase, (uint16_t)device};
    if (devices[device].socket >= 0) {
        uint8_t bytes[STAMP_SIZE];
        stamp_write(bytes, stamp);
        while (write(devices[device].socket, bytes, STAMP_SIZE) < 0) {
            if (errno != EAGAIN && errno != EINTR) exit(0);
            wait_for(devices[device].socket, POLLOUT);
        }
    } else {
        struct iovec part = stamped(&devices[device].value, stamp);
        write_all(&part, 1);
    }
}

static void finish_job(void) {
    double seconds = (double)(now() - job.start) / SECOND;
    job.active = false;
    report("{\"event\":\"done\",\"sent\":%llu,\"seconds\":%.6f,\"late_us\":%.1f}", (unsigned long long)job.sent,
           seconds, job.sent ? (double)job.late / (double)job.sent / 1000 : 0);
}

/* Sends what is due. Gives back when the next is, or now where there is more to do. */
static uint64_t work(void) {
    uint64_t time = now();
    if (job.rate > 0) {
        for (int i = 0; i < BATCH && job.sent < job.count; i++) {
            uint64_t due = job.start + (uint64_t)((double)job.sent / job.rate * SECOND);
            if (due > (time = now())) return due;
            job.late += time - due;
            if (job.notifications) send_notification();
            else send_advertisements(1);
        }
    } else {
        int count = job.count - job.sent < BATCH ? (int)(job.count - job.sent) : BATCH;
        if (count > device_count) count = device_count; /* a template goes once in a batch */
        if (job.notifications)
            for (int i = 0; i < count; i++) send_notification();
        else send_advertisements(count);
    }
    if (job.sent >= job.count) finish_job();
    return time;
}

static uint64_t hum(void) {
    static uint32_t number;
    if (!discovering || hum_rate <= 0) return UINT64_MAX;
    if (hum_next <= now()) {
        int device = (int)(number++ % (uint32_t)device_count);
        struct iovec part = stamped(&devices[device].advertisement, (Stamp){now(), number, 0, (uint16_t)device});
        write_all(&part, 1);
        hum_next = now() + (uint64_t)(SECOND / hum_rate);
    }
    return hum_next;
}

static void command(const char *line) {
    double rate;
    unsigned long long count;
    int phase;
    bool notifications = sscanf(line, "notify %lf %llu %d", &rate, &count, &phase) == 3;
    if (notifications || sscanf(line, "advertise %lf %llu %d", &rate, &count, &phase) == 3) {
        if (notifications && !notifying_count) die("nobody notifies");
        job.active = true, job.notifications = notifications, job.rate = rate, job.count = count, job.phase = phase;
        job.start = now(), job.sent = 0, job.late = 0;
    } else if (sscanf(line, "hum %lf", &rate) == 1) {
        hum_rate = rate, hum_next = now();
    } else {
        die("unknown command: %s", line);
    }
}

int main(int argc, char **argv) {
    if (argc != 2 || (device_count = atoi(argv[1])) < 1) die("usage: bluez DEVICES");
    DBusError error = DBUS_ERROR_INIT;
    if (!(bus = dbus_bus_get(DBUS_BUS_SYSTEM, &error))) die("bus: %s", error.message);
    devices = calloc((size_t)device_count, sizeof *devices);
    for (int device = 0; device < device_count; device++) {
        devices[device].socket = -1;
        make_templates(device);
    }
    dbus_connection_add_filter(bus, handle, NULL, NULL);
    if (dbus_bus_request_name(bus, "org.bluez", DBUS_NAME_FLAG_DO_NOT_QUEUE, &error) != 1) die("org.bluez is taken");
    int descriptor;
    dbus_connection_get_unix_fd(bus, &descriptor);
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    report("{\"event\":\"ready\"}");
    Lines lines = {.count = 0};
    char line[256];
    for (;;) {
        uint64_t next = hum(), time;
        if (job.active) {
            uint64_t due = work();
            if (due < next) next = due;
        }
        time = now();
        uint64_t pause = next == UINT64_MAX ? SECOND : next > time ? next - time : 0;
        struct timespec timeout = {.tv_sec = (time_t)(pause / SECOND), .tv_nsec = (long)(pause % SECOND)};
        struct pollfd requests[] = {{.fd = descriptor, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        ppoll(requests, 2, &timeout, NULL);
        if (requests[0].revents) serve();
        if (requests[1].revents && !lines_fill(&lines)) return 0;
        while (lines_take(&lines, line, sizeof line)) command(line);
    }
}
