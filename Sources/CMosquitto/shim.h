#pragma once
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/socket.h>

// Why a server's certificate was refused, in OpenSSL's words; NULL where it was not.
// Source: SSL_get_verify_result(3), X509_verify_cert_error_string(3).
static inline const char *cmosquitto_verify_error(struct mosquitto *client) {
    SSL *ssl = (SSL *)mosquitto_ssl_get(client);
    if (ssl == NULL) return NULL;
    long result = SSL_get_verify_result(ssl);
    return result == X509_V_OK ? NULL : X509_verify_cert_error_string(result);
}

// tcp(7), TCP_CORK: while on, the kernel sends full segments only; switching it off sends the rest.
static inline void cmosquitto_cork(int socket, int on) {
    setsockopt(socket, IPPROTO_TCP, TCP_CORK, &on, sizeof on);
}

// tcp(7), TCP_QUICKACK: what has come is acknowledged now, not with the next data or after 40 ms.
static inline void cmosquitto_quick_ack(int socket) {
    int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}
