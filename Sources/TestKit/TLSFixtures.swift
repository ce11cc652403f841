/// Certificates and keys for tests, worth nothing anywhere else.
public enum TLSFixtures {
    public static let clientKeyPassword = "open-sesame"

    /// Signs everything here.
    public static let ca = """
        -----BEGIN CERTIFICATE-----
        MIIBOjCB4aADAgECAhRv086WGRmf8e9yjDRFC5dhExgM9TAKBggqhkjOPQQDAjAS
        MRAwDgYDVQQDDAdUZXN0IENBMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAw
        MDAwWjASMRAwDgYDVQQDDAdUZXN0IENBMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
        QgAEknbNdpmP2JwuqHzf8nk8xQ65XPM3OObr9FyS43eXZq7jHU72WWoh0kWMZjsX
        OFEFQ3oTWMG8S4KaqW1hL6DOQKMTMBEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjO
        PQQDAgNIADBFAiBASoG/BkK4TpeHPwMH/3ZLWrVWYQ+XJKQ7pN49/fFiCAIhAKh8
        XJq/BOjZDKBGsjJBxAyHj/fjnSwLxFxOaDCRB7/b
        -----END CERTIFICATE-----

        """

    /// Signs nothing here.
    public static let otherCA = """
        -----BEGIN CERTIFICATE-----
        MIIBPDCB46ADAgECAhRKxCgPDg71qERzkXy85uhenoCEHDAKBggqhkjOPQQDAjAT
        MREwDwYDVQQDDAhPdGhlciBDQTAgFw0yMDAxMDEwMDAwMDBaGA8yMTIwMDEwMTAw
        MDAwMFowEzERMA8GA1UEAwwIT3RoZXIgQ0EwWTATBgcqhkjOPQIBBggqhkjOPQMB
        BwNCAAQ7O6dDXp4pWwsY6TbgPbf6jCq7vTqCihRH0wkVdxXDKPRalc3nP5e+xfq4
        d6Qw9CZ7hpXko0aAwKOfdXghzV6joxMwETAPBgNVHRMBAf8EBTADAQH/MAoGCCqG
        SM49BAMCA0gAMEUCIEnav+1nD6Pcfl2cE38ksyUvsKZ9M/y1+nxG7L9TYygxAiEA
        6nJWs5mMdotjvfUQc2s3mj+vt0AqXjtng7XeHGAI0s4=
        -----END CERTIFICATE-----

        """

    /// For 127.0.0.1 and broker.test, valid from 2020 to 2120.
    public static let server = """
        -----BEGIN CERTIFICATE-----
        MIIBVTCB+6ADAgECAhQeLK+kXXTNbJzpDPVo8Ev0ZBU9CjAKBggqhkjOPQQDAjAS
        MRAwDgYDVQQDDAdUZXN0IENBMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAw
        MDAwWjARMQ8wDQYDVQQDDAZicm9rZXIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
        AAT0/ejhqJjLwgW1Ea9bzEZ9S57WvrZoCu4QHgfrqebHT6msa5yWR6QeFogXnaX0
        Biw5/FQ2xBentGHFCN5W+xLOoy4wLDAMBgNVHRMBAf8EAjAAMBwGA1UdEQQVMBOH
        BH8AAAGCC2Jyb2tlci50ZXN0MAoGCCqGSM49BAMCA0kAMEYCIQDh+nWOykAziHy2
        w5p4MwlQjBZPmGm7n8ZMjnb+ky5wLwIhAO1XGMYs98aOuH/LvVQDWAPv7T/+m5tW
        O7ShUuIOUtBS
        -----END CERTIFICATE-----

        """

    /// The same, expired in 2021.
    public static let expiredServer = """
        -----BEGIN CERTIFICATE-----
        MIIBUjCB+aADAgECAhQfGbApfdqxDJI9+ckjH0PlAP0JfTAKBggqhkjOPQQDAjAS
        MRAwDgYDVQQDDAdUZXN0IENBMB4XDTIwMDEwMTAwMDAwMFoXDTIxMDEwMTAwMDAw
        MFowETEPMA0GA1UEAwwGYnJva2VyMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
        9P3o4aiYy8IFtRGvW8xGfUue1r62aAruEB4H66nmx0+prGuclkekHhaIF52l9AYs
        OfxUNsQXp7RhxQjeVvsSzqMuMCwwDAYDVR0TAQH/BAIwADAcBgNVHREEFTAThwR/
        AAABggticm9rZXIudGVzdDAKBggqhkjOPQQDAgNIADBFAiEA2lrYRqmPmvOR+x6f
        fu5wIlX4VnlD/lNOs8kYZuAuWngCID5gWi0BIjYzNdDlk2uf94kfGE+d5mxZK6OS
        liB8eRrm
        -----END CERTIFICATE-----

        """

    /// Of both servers.
    public static let serverKey = """
        -----BEGIN PRIVATE KEY-----
        MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMmDXvqyuy3GpK+QA
        AkxCTXpEqnL2oj5DGpe8fz34ZH+hRANCAAT0/ejhqJjLwgW1Ea9bzEZ9S57WvrZo
        Cu4QHgfrqebHT6msa5yWR6QeFogXnaX0Biw5/FQ2xBentGHFCN5W+xLO
        -----END PRIVATE KEY-----

        """

    /// For the client `gateway`.
    public static let client = """
        -----BEGIN CERTIFICATE-----
        MIIBODCB3qADAgECAhQg1tltp8DDpwaZ5NjUrvfG8T/uPjAKBggqhkjOPQQDAjAS
        MRAwDgYDVQQDDAdUZXN0IENBMCAXDTIwMDEwMTAwMDAwMFoYDzIxMjAwMTAxMDAw
        MDAwWjASMRAwDgYDVQQDDAdnYXRld2F5MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD
        QgAEyxKjGxKO/rRimAhUOPkdJtzrgdg5C3GjwOw3BLE1ypVVPNr7OlJEOYYcMxHd
        n/wK5WFLXKxG4x1aRQRYV4GfKKMQMA4wDAYDVR0TAQH/BAIwADAKBggqhkjOPQQD
        AgNJADBGAiEAxZYTQcWOchSE3niqPYCzxkQ7p7dcRAMDUNd08HBOx0ECIQDHmlgC
        4UZSZDcxaNdKWDVCVhgDUidcOmJu1TZSrRMv/w==
        -----END CERTIFICATE-----

        """

    /// Its key, encrypted with ``clientKeyPassword``.
    public static let clientKey = """
        -----BEGIN ENCRYPTED PRIVATE KEY-----
        MIH0MF8GCSqGSIb3DQEFDTBSMDEGCSqGSIb3DQEFDDAkBBCGGLt13/y2fwvEnMa/
        4WOyAgIIADAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQOESLV3oYIYeSPEbu
        gVLXQQSBkAhTmx17Q3kzNB5GkO5nEE4VulrgNf6iLKtHD5a2O5rgtd2GFfXjDvYL
        D1vAtV/pKnrHWpvqBlnXcTBLREgsh4PNi47CNjYcQaDumsuB6Z1kvgvu7gwsbYGu
        Ir89VxVAYy33Kg901vtsUq8G39z5CQxUSx+rfPcuB2ygnkJtbERS6UQTFWPpwMUu
        wUqxB4Lwbw==
        -----END ENCRYPTED PRIVATE KEY-----

        """
}
