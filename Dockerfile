# blueferry in a container. The host's bluetoothd does the radio's work; the container reaches it by the host's D-Bus
# socket (see docker-compose.yml).
FROM debian:trixie AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    swiftlang libstdc++-14-dev git ca-certificates pkg-config \
    libdbus-1-dev libmosquitto-dev libyaml-dev libjansson-dev libsqlite3-dev libpcre2-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY Package.swift ./
COPY Sources Sources
COPY Tests Tests
COPY Examples Examples
RUN swift build -c release --static-swift-stdlib --product blueferry \
    && install -D "$(swift build -c release --static-swift-stdlib --show-bin-path)/blueferry" /out/blueferry

FROM debian:trixie-slim
RUN apt-get update && apt-get install -y --no-install-recommends \
    ca-certificates libdbus-1-3 libmosquitto1 libyaml-0-2 libjansson4 libsqlite3-0 libpcre2-8-0 mosquitto-clients \
    && rm -rf /var/lib/apt/lists/* && mkdir -p /var/lib/blueferry
COPY --from=build /out/blueferry /usr/local/bin/blueferry
COPY config/blueferry.yaml /etc/blueferry/blueferry.yaml
VOLUME /var/lib/blueferry
ENTRYPOINT ["blueferry"]
CMD ["run", "--config", "/etc/blueferry/blueferry.yaml"]
