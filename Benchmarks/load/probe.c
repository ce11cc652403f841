/* The probe: subscribes, counts what comes by its stamps and takes its latencies; and sends read commands. It speaks
 * MQTT itself, with one read for many messages, since it shares the machine with what is measured.
 *
 *     probe PORT FILTER [COMMAND-TOPIC COMMAND-PAYLOAD ADDRESS...]
 *
 * In topic and payload of a command `%i` is its id, `%d` the device's 12 hex digits.
 * Standard input, one command a line:
 *     phase N              forgets, and counts messages of this phase from now on
 *     ask COUNT WINDOW     sends so many commands, that many in flight
 *     count                reports how many have come
 *     statistics           reports rate and latencies */
#include "bench.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define MOST 4000000u

static int broker;
static uint8_t input[1 << 18];
static size_t input_count;
static int phase;
static bool first_was_told;

static uint64_t *seen;          /* a bit for each number of the phase */
static uint32_t *latencies;     /* in units of 100 ns */
static uint32_t unique, doubles, strange, failures;
static uint64_t first_time, last_time;

static const char *command_topic, *command_payload;
static char **addresses;
static int address_count;
static uint64_t *asked_at;
static uint32_t asked, answered, to_ask, window;
/* No id is used twice: the bridge would answer a repeat from memory. */
static uint32_t first_id;

static void send_packet(uint8_t type, const void *body, size_t size) {
    uint8_t head[5] = {type};
    size_t count = 1, rest = size;
    do {
        head[count++] = (uint8_t)(rest % 128 | (rest > 127 ? 128 : 0));
        rest /= 128;
    } while (rest);
    uint8_t packet[2048];
    if (count + size > sizeof packet) die("the command is too long");
    memcpy(packet, head, count);
    memcpy(packet + count, body, size);
    if (write(broker, packet, count + size) != (ssize_t)(count + size)) die("the broker took no packet");
}

static size_t put_text(uint8_t *to, const char *text) {
    size_t length = strlen(text);
    to[0] = (uint8_t)(length >> 8), to[1] = (uint8_t)length;
    memcpy(to + 2, text, length);
    return length + 2;
}

/* Source: MQTT 3.1.1, sections 3.1 and 3.8. */
static void open_broker(int port, const char *filter) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    broker = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(broker, (struct sockaddr *)&name, sizeof name)) die("no broker");
    setsockopt(broker, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    uint8_t body[1024] = {0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 0};
    send_packet(0x10, body, 10 + put_text(body + 10, "probe"));
    body[0] = 0, body[1] = 1;
    size_t size = 2 + put_text(body + 2, filter);
    body[size++] = 0;
    send_packet(0x82, body, size);
}

/* ---- what comes */

static int digit(uint8_t c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; }

static void note_latency(uint64_t time, uint64_t since) {
    uint64_t units = time > since ? (time - since) / 100 : 0;
    if (!unique) first_time = time;
    last_time = time;
    latencies[unique++] = units > UINT32_MAX ? UINT32_MAX : (uint32_t)units;
}

static bool was_seen(uint32_t number) {
    uint64_t bit = 1ull << (number % 64), *word = &seen[number / 64];
    bool before = *word & bit;
    *word |= bit;
    return before;
}

static void take_stamp(const uint8_t *digits, uint64_t time) {
    uint8_t bytes[STAMP_SIZE];
    Stamp stamp;
    for (int i = 0; i < STAMP_SIZE; i++) bytes[i] = (uint8_t)(digit(digits[2 * i]) << 4 | digit(digits[2 * i + 1]));
    memcpy(&stamp.time, bytes + 4, 8);
    memcpy(&stamp.number, bytes + 12, 4);
    memcpy(&stamp.phase, bytes + 16, 2);
    if (!first_was_told) {
        first_was_told = true;
        report("{\"event\":\"first\",\"time\":%llu}", (unsigned long long)time);
    }
    if (stamp.phase != phase || stamp.number >= MOST) return;
    if (was_seen(stamp.number)) doubles++;
    else note_latency(time, stamp.time);
}

static void ask(void) {
    char id[16], payload[1024], topic[512];
    const char *d = addresses[asked % (uint32_t)address_count];
    snprintf(id, sizeof id, "q%08u", first_id + asked);
    for (int part = 0; part < 2; part++) {
        char *to = part ? payload : topic;
        const char *from = part ? command_payload : command_topic;
        for (; *from; from++) {
            if (from[0] == '%' && (from[1] == 'i' || from[1] == 'd')) to = stpcpy(to, *++from == 'i' ? id : d);
            else *to++ = *from;
        }
        *to = 0;
    }
    uint8_t body[1600];
    size_t size = put_text(body, topic), length = strlen(payload);
    memcpy(body + size, payload, length);
    asked_at[asked++] = now();
    send_packet(0x30, body, size + length);
}

static void take_answer(const uint8_t *payload, size_t size, uint64_t time) {
    const uint8_t *id = memmem(payload, size, "\"id\":\"q", 7);
    if (!id || payload + size - id < 16) {
        strange++;
        return;
    }
    uint32_t number = (uint32_t)strtoul((const char *)id + 7, NULL, 10) - first_id; /* an earlier one is out of range */
    if (number >= asked) return;
    if (was_seen(number)) {
        doubles++;
        return;
    }
    if (!memmem(payload, size, STAMP_MAGIC_HEX, 8)) failures++;
    note_latency(time, asked_at[number]);
    answered++;
    if (asked < to_ask) ask();
    else if (answered == to_ask) report("{\"event\":\"answered\",\"count\":%u}", answered);
}

static void take_publish(const uint8_t *body, size_t size, uint64_t time) {
    size_t topic = (size_t)body[0] << 8 | body[1];
    if (topic + 2 > size) die("the broker sent a strange packet");
    const uint8_t *payload = body + 2 + topic;
    size -= 2 + topic;
    if (to_ask) return take_answer(payload, size, time);
    const uint8_t *stamp = memmem(payload, size, STAMP_MAGIC_HEX, 8);
    if (stamp && stamp + 2 * STAMP_SIZE <= payload + size) take_stamp(stamp, time);
    else strange++;
}

static void take_packets(void) {
    ssize_t count = read(broker, input + input_count, sizeof input - input_count);
    if (count <= 0) die("the broker closed the connection");
    input_count += (size_t)count;
    uint64_t time = now();
    size_t at = 0;
    while (input_count - at >= 2) {
        size_t size = 0, head = 1, shift = 0;
        bool is_whole = false;
        for (; head < 5 && at + head < input_count && !is_whole; head++, shift += 7) {
            size |= (size_t)(input[at + head] & 127) << shift;
            is_whole = !(input[at + head] & 128);
        }
        if (!is_whole || input_count - at < head + size) break;
        const uint8_t *body = input + at + head;
        if (input[at] >> 4 == 9) report("{\"event\":\"ready\"}");
        if (input[at] >> 4 == 3 && size >= 2) take_publish(body, size, time);
        at += head + size;
    }
    input_count -= at;
    memmove(input, input + at, input_count);
}

/* ---- orders */

static int by_value(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static double percentile(double part) {
    return unique ? latencies[(uint32_t)(part * (unique - 1))] / 10.0 : 0;
}

static void statistics(void) {
    double seconds = (double)(last_time - first_time) / SECOND;
    qsort(latencies, unique, sizeof *latencies, by_value);
    report("{\"event\":\"statistics\",\"unique\":%u,\"doubles\":%u,\"strange\":%u,\"failures\":%u,\"rate\":%.1f,"
           "\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f}",
           unique, doubles, strange, failures, seconds > 0 ? (unique - 1) / seconds : 0, percentile(0.5),
           percentile(0.99), percentile(1));
}

static void forget(void) {
    memset(seen, 0, MOST / 8);
    first_id += asked;
    unique = doubles = strange = failures = asked = answered = to_ask = 0;
}

static void command(const char *line) {
    unsigned count;
    if (sscanf(line, "phase %d", &phase) == 1) {
        forget();
    } else if (sscanf(line, "ask %u %u", &count, &window) == 2 && address_count && count <= MOST) {
        forget();
        to_ask = count;
        while (asked < to_ask && asked < window) ask();
    } else if (!strcmp(line, "count")) {
        report("{\"event\":\"count\",\"unique\":%u}", unique);
    } else if (!strcmp(line, "statistics")) {
        statistics();
    } else {
        die("unknown command: %s", line);
    }
}

int main(int argc, char **argv) {
    if (argc != 3 && argc < 6) die("usage: probe PORT FILTER [COMMAND-TOPIC COMMAND-PAYLOAD ADDRESS...]");
    if (argc >= 6) command_topic = argv[3], command_payload = argv[4], addresses = argv + 5, address_count = argc - 5;
    seen = calloc(MOST / 64 + 1, sizeof *seen);
    latencies = calloc(MOST, sizeof *latencies);
    asked_at = calloc(MOST, sizeof *asked_at);
    if (!seen || !latencies || !asked_at) die("out of memory");
    fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
    open_broker(atoi(argv[1]), argv[2]);
    Lines lines = {.count = 0};
    char line[256];
    for (;;) {
        struct pollfd requests[] = {{.fd = broker, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
        poll(requests, 2, -1);
        if (requests[0].revents) take_packets();
        if (requests[1].revents && !lines_fill(&lines)) return 0;
        while (lines_take(&lines, line, sizeof line)) command(line);
    }
}
