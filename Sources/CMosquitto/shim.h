#pragma once
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>
#include <sys/uio.h>

// Why a server's certificate was refused, in OpenSSL's words; NULL where it was not.
// Source: SSL_get_verify_result(3), X509_verify_cert_error_string(3).
static inline const char *cmosquitto_verify_error(struct mosquitto *client) {
    SSL *ssl = (SSL *)mosquitto_ssl_get(client);
    if (ssl == NULL) return NULL;
    long result = SSL_get_verify_result(ssl);
    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}

// send(2) of two pieces of memory, one after the other.
static inline ssize_t cmosquitto_send_both(
    int socket, const void *first, size_t first_size, const void *second, size_t second_size) {
    struct iovec pieces[2] = {{(void *)first, first_size}, {(void *)second, second_size}};
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

// tcp(7), TCP_CORK: while on, the kernel sends full segments only; switching it off sends the rest.
static inline void cmosquitto_cork(int socket, int on) {
    setsockopt(socket, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}
