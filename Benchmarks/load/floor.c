/* The floor: what libdbus, libmosquitto and the kernel cost. One thread, no state of devices, JSON by snprintf.
 *
 *     floor PORT advertisements|signals|sockets|reads QOS [ADDRESS...]
 *
 * The addresses are those of the devices to connect to. */
#include "bench.h"
#include <mosquitto.h>

#define MOST 32
typedef DBusMessageIter Iter;

static DBusConnection *bus;
static struct mosquitto *broker;
static int qos;

static void publish(const char *topic, const char *payload, int size) {
    mosquitto_publish(broker, NULL, topic, size, payload, qos, false);
}

/* The 12 hex digits of a device's path; false where it is none. */
static bool device_of(const char *path, char digits[13]) {
    const char *c = strstr(path, "/dev_");
    if (!c) return false;
    int count = 0;
    for (c += 5; *c && *c != '/' && count < 12; c++)
        if (*c != '_') digits[count++] = *c;
    digits[count] = 0;
    return count == 12;
}

static void publish_value(const char *kind, const char *device, const char *id, const uint8_t *bytes, int count) {
    char topic[64], payload[1200];
    if (count > 512) return;
    snprintf(topic, sizeof topic, "floor/%s/%s", kind, device);
    char *end = payload + snprintf(payload, sizeof payload, "{\"id\":\"%s\",\"value\":\"", id);
    end = hex(end, bytes, count);
    end = stpcpy(end, "\"}");
    publish(topic, payload, (int)(end - payload));
}

static const uint8_t *bytes_of(Iter *variant, int *count) {
    Iter array, items;
    const uint8_t *bytes = NULL;
    *count = 0;
    dbus_message_iter_recurse(variant, &array);
    if (dbus_message_iter_get_arg_type(&array) != DBUS_TYPE_ARRAY) return NULL;
    dbus_message_iter_recurse(&array, &items);
    dbus_message_iter_get_fixed_array(&items, &bytes, count);
    return bytes;
}

/* `a{qv}` or `a{sv}` of bytes, as a JSON object. */
static char *put_data(char *to, char *end, const char *name, Iter *value) {
    Iter inner, entries, entry;
    to += sprintf(to, ",\"%s\":{", name);
    dbus_message_iter_recurse(value, &inner);
    dbus_message_iter_recurse(&inner, &entries);
    for (int i = 0; dbus_message_iter_get_arg_type(&entries) == DBUS_TYPE_DICT_ENTRY; i++) {
        int count;
        dbus_message_iter_recurse(&entries, &entry);
        if (i) *to++ = ',';
        if (dbus_message_iter_get_arg_type(&entry) == DBUS_TYPE_UINT16) {
            uint16_t company;
            dbus_message_iter_get_basic(&entry, &company);
            to += sprintf(to, "\"%04x\":\"", company);
        } else {
            const char *uuid;
            dbus_message_iter_get_basic(&entry, &uuid);
            to += sprintf(to, "\"%s\":\"", uuid);
        }
        dbus_message_iter_next(&entry);
        const uint8_t *bytes = bytes_of(&entry, &count);
        if (end - to < 2 * count + 128) break;
        to = hex(to, bytes, count);
        *to++ = '"';
        dbus_message_iter_next(&entries);
    }
    *to++ = '}';
    return to;
}

static void advertisement(const char *device, Iter *properties) {
    char topic[64], payload[1500], *to = payload;
    to += sprintf(to, "{\"address\":\"%s\"", device);
    for (; dbus_message_iter_get_arg_type(properties) == DBUS_TYPE_DICT_ENTRY; dbus_message_iter_next(properties)) {
        Iter entry, value;
        const char *name;
        dbus_message_iter_recurse(properties, &entry);
        dbus_message_iter_get_basic(&entry, &name);
        dbus_message_iter_next(&entry);
        if (!strcmp(name, "RSSI")) {
            int16_t rssi;
            dbus_message_iter_recurse(&entry, &value);
            dbus_message_iter_get_basic(&value, &rssi);
            to += sprintf(to, ",\"rssi\":%d", rssi);
        } else if (!strcmp(name, "ManufacturerData")) {
            to = put_data(to, payload + sizeof payload, "manufacturer_data", &entry);
        } else if (!strcmp(name, "ServiceData")) {
            to = put_data(to, payload + sizeof payload, "service_data", &entry);
        }
    }
    *to++ = '}';
    snprintf(topic, sizeof topic, "floor/advertisement/%s", device);
    publish(topic, payload, (int)(to - payload));
}

static void value_change(const char *device, Iter *properties) {
    for (; dbus_message_iter_get_arg_type(properties) == DBUS_TYPE_DICT_ENTRY; dbus_message_iter_next(properties)) {
        Iter entry;
        const char *name;
        int count;
        dbus_message_iter_recurse(properties, &entry);
        dbus_message_iter_get_basic(&entry, &name);
        dbus_message_iter_next(&entry);
        if (strcmp(name, "Value")) continue;
        const uint8_t *bytes = bytes_of(&entry, &count);
        publish_value("value", device, "", bytes, count);
    }
}

static DBusHandlerResult filter(DBusConnection *connection, DBusMessage *message, void *data) {
    (void)connection, (void)data;
    if (!dbus_message_is_signal(message, DBUS_INTERFACE_PROPERTIES, "PropertiesChanged"))
        return DBUS_HANDLER_RESULT_NOT_YET_HANDLED;
    Iter arguments, properties;
    const char *interface;
    char device[13];
    if (!device_of(dbus_message_get_path(message), device)) return DBUS_HANDLER_RESULT_HANDLED;
    dbus_message_iter_init(message, &arguments);
    dbus_message_iter_get_basic(&arguments, &interface);
    dbus_message_iter_next(&arguments);
    dbus_message_iter_recurse(&arguments, &properties);
    if (!strcmp(interface, "org.bluez.Device1")) advertisement(device, &properties);
    if (!strcmp(interface, "org.bluez.GattCharacteristic1")) value_change(device, &properties);
    return DBUS_HANDLER_RESULT_HANDLED;
}

/* ---- calls */

static DBusMessage *new_call(const char *path, const char *interface, const char *member, bool options) {
    DBusMessage *call = dbus_message_new_method_call("org.bluez", path, interface, member);
    if (options) {
        Iter iter, none;
        dbus_message_iter_init_append(call, &iter);
        dbus_message_iter_open_container(&iter, DBUS_TYPE_ARRAY, "{sv}", &none);
        dbus_message_iter_close_container(&iter, &none);
    }
    return call;
}

static DBusMessage *call_and_wait(const char *path, const char *interface, const char *member, bool options) {
    DBusError error = DBUS_ERROR_INIT;
    DBusMessage *call = new_call(path, interface, member, options);
    DBusMessage *reply = dbus_connection_send_with_reply_and_block(bus, call, 20000, &error);
    dbus_message_unref(call);
    if (!reply) die("%s: %s", member, error.message);
    return reply;
}

typedef struct {
    char id[16], device[13];
} Request;

static void was_read(DBusPendingCall *pending, void *data) {
    Request *request = data;
    Iter iter, items;
    const uint8_t *bytes = NULL;
    int count = 0;
    DBusMessage *reply = dbus_pending_call_steal_reply(pending);
    if (dbus_message_get_type(reply) == DBUS_MESSAGE_TYPE_METHOD_RETURN) {
        dbus_message_iter_init(reply, &iter);
        dbus_message_iter_recurse(&iter, &items);
        dbus_message_iter_get_fixed_array(&items, &bytes, &count);
    }
    publish_value("response", request->device, request->id, bytes, count);
    dbus_message_unref(reply);
    dbus_pending_call_unref(pending);
}

/* `floor/read/C0FE00000001` with `{"id":"q00000001"}`. */
static void was_asked(struct mosquitto *client, void *data, const struct mosquitto_message *message) {
    (void)client, (void)data;
    char path[96];
    const char *d = message->topic + strlen("floor/read/");
    const char *id = memmem(message->payload, (size_t)message->payloadlen, "\"id\":\"", 6);
    if (strlen(message->topic) != strlen("floor/read/") + 12 || !id || message->payloadlen < 17) return;
    Request *request = calloc(1, sizeof *request);
    memcpy(request->id, id + 6, 9);
    memcpy(request->device, d, 12);
    snprintf(path, sizeof path, "/org/bluez/hci0/dev_%.2s_%.2s_%.2s_%.2s_%.2s_%.2s/service0010/char0011", d, d + 2,
             d + 4, d + 6, d + 8, d + 10);
    DBusMessage *call = new_call(path, "org.bluez.GattCharacteristic1", "ReadValue", true);
    DBusPendingCall *pending = NULL;
    dbus_connection_send_with_reply(bus, call, &pending, 20000);
    dbus_message_unref(call);
    if (pending) dbus_pending_call_set_notify(pending, was_read, request, free);
}

/* ---- life */

typedef struct {
    int descriptor;
    char device[13];
} Socket;

static void match(const char *interface) {
    DBusError error = DBUS_ERROR_INIT;
    char rule[256];
    snprintf(rule, sizeof rule, "type='signal',sender='org.bluez',interface='org.freedesktop.DBus.Properties',"
             "member='PropertiesChanged',arg0='%s'", interface);
    dbus_bus_add_match(bus, rule, &error);
    if (dbus_error_is_set(&error)) die("AddMatch: %s", error.message);
}

static void connect_to(const char *address, const char *workload, Socket *to) {
    char path[96];
    snprintf(path, sizeof path, "/org/bluez/hci0/dev_%.17s", address);
    for (char *c = path; *c; c++)
        if (*c == ':') *c = '_';
    dbus_message_unref(call_and_wait(path, "org.bluez.Device1", "Connect", false));
    device_of(path, to->device);
    strcat(path, "/service0010/char0011");
    to->descriptor = -1;
    if (!strcmp(workload, "signals"))
        dbus_message_unref(call_and_wait(path, "org.bluez.GattCharacteristic1", "StartNotify", false));
    if (strcmp(workload, "sockets")) return;
    DBusMessage *reply = call_and_wait(path, "org.bluez.GattCharacteristic1", "AcquireNotify", true);
    dbus_message_get_args(reply, NULL, DBUS_TYPE_UNIX_FD, &to->descriptor, DBUS_TYPE_INVALID);
    dbus_message_unref(reply);
}

static void start(const char *workload, char **addresses, int count, Socket *sockets) {
    if (!strcmp(workload, "advertisements")) {
        match("org.bluez.Device1");
        dbus_message_unref(call_and_wait("/org/bluez/hci0", "org.bluez.Adapter1", "SetDiscoveryFilter", true));
        dbus_message_unref(call_and_wait("/org/bluez/hci0", "org.bluez.Adapter1", "StartDiscovery", false));
    }
    if (!strcmp(workload, "signals")) match("org.bluez.GattCharacteristic1");
    for (int i = 0; i < count; i++) connect_to(addresses[i], workload, &sockets[i]);
    if (!strcmp(workload, "reads")) mosquitto_subscribe(broker, NULL, "floor/read/+", 0);
}

/* libdbus has a watch for reading and one for writing on its one descriptor. */
static DBusWatch *watches[4];

static dbus_bool_t add_watch(DBusWatch *watch, void *data) {
    (void)data;
    for (int i = 0; i < 4; i++)
        if (!watches[i]) return watches[i] = watch, true;
    return false;
}

static void remove_watch(DBusWatch *watch, void *data) {
    (void)data;
    for (int i = 0; i < 4; i++)
        if (watches[i] == watch) watches[i] = NULL;
}

/* What to wait for. DBUS_WATCH_READABLE and _WRITABLE are the first two bits. */
static short bus_events(void) {
    unsigned flags = 0;
    for (int i = 0; i < 4; i++)
        if (watches[i] && dbus_watch_get_enabled(watches[i])) flags |= dbus_watch_get_flags(watches[i]);
    return (short)((flags & DBUS_WATCH_READABLE ? POLLIN : 0) | (flags & DBUS_WATCH_WRITABLE ? POLLOUT : 0));
}

static void serve_bus(short events) {
    unsigned flags = events & POLLOUT ? DBUS_WATCH_WRITABLE : 0;
    if (events & (POLLIN | POLLHUP)) flags |= DBUS_WATCH_READABLE;
    for (int i = 0; flags && i < 4; i++) {
        unsigned part = watches[i] && dbus_watch_get_enabled(watches[i]) ? dbus_watch_get_flags(watches[i]) & flags : 0;
        if (part) dbus_watch_handle(watches[i], part);
    }
    while (dbus_connection_dispatch(bus) == DBUS_DISPATCH_DATA_REMAINS) {}
    if (!dbus_connection_get_is_connected(bus)) exit(0);
}

int main(int argc, char **argv) {
    if (argc < 4 || argc - 4 > MOST) die("usage: floor PORT advertisements|signals|sockets|reads QOS [ADDRESS...]");
    Socket sockets[MOST];
    int count = argc - 4, descriptor;
    DBusError error = DBUS_ERROR_INIT;
    qos = atoi(argv[3]);
    mosquitto_lib_init();
    broker = mosquitto_new("floor", true, NULL);
    mosquitto_int_option(broker, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_int_option(broker, MOSQ_OPT_SEND_MAXIMUM, 65535);
    mosquitto_message_callback_set(broker, was_asked);
    if (mosquitto_connect(broker, "127.0.0.1", atoi(argv[1]), 60)) die("no broker");
    if (!(bus = dbus_bus_get(DBUS_BUS_SYSTEM, &error))) die("bus: %s", error.message);
    dbus_connection_add_filter(bus, filter, NULL, NULL);
    start(argv[2], argv + 4, count, sockets);
    dbus_connection_get_unix_fd(bus, &descriptor);
    dbus_connection_set_watch_functions(bus, add_watch, remove_watch, NULL, NULL, NULL);
    serve_bus(POLLIN);
    for (uint64_t upkeep = now();;) {
        struct pollfd requests[MOST + 2] = {{.fd = descriptor, .events = bus_events()}};
        short events = (short)(POLLIN | (mosquitto_want_write(broker) ? POLLOUT : 0));
        requests[1] = (struct pollfd){.fd = mosquitto_socket(broker), .events = events};
        for (int i = 0; i < count; i++)
            requests[i + 2] = (struct pollfd){.fd = sockets[i].descriptor, .events = POLLIN};
        poll(requests, (nfds_t)count + 2, 1000);
        if (requests[1].revents & POLLIN && mosquitto_loop_read(broker, 1)) return 0;
        if (requests[1].revents & POLLOUT) mosquitto_loop_write(broker, 1);
        serve_bus(requests[0].revents);
        for (int i = 0; i < count; i++) {
            uint8_t bytes[512];
            if (!requests[i + 2].revents) continue;
            ssize_t size = read(sockets[i].descriptor, bytes, sizeof bytes);
            if (size <= 0) return 0;
            publish_value("value", sockets[i].device, "", bytes, (int)size);
        }
        if (now() - upkeep > SECOND) {
            upkeep = now();
            mosquitto_loop_misc(broker);
        }
    }
}
