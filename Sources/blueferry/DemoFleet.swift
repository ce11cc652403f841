/// The fleet that the program carries: the text of config/fleet.yaml, which a test holds it to.
enum DemoFleet {
    static let text = #"""
        # The devices of the demo, of the contract tests and of the lab. Every kind of device that the bridge has to get along
        # with stands here once, and says what for. Together they advertise about a hundred times a second.
        #
        # The simulator and the lab's radio read this same file; docs/lab.md and docs/simulator.md explain its keys.

        seed: 1

        adapters:
          - { name: hci0, address: "00:1A:7D:DA:71:13", alias: lab }

        devices:

          # --- Devices that only advertise

          # iBeacon: manufacturer data of 004c, never connectable, never a name
          - id: ibeacon
            address: "C0:4C:00:00:00:01"
            connectable: false
            rssi: -72
            rssi_jitter: 4
            interval: 1000
            manufacturer_data: { "004c": "02154e6ee6c362a64bdfb014b6281d46d25c00010001c4" }

          # Eddystone-UID: service data of feaa, without the two reserved bytes that some devices leave out
          - id: eddystone-uid
            address: "C0:FE:AA:00:00:01"
            connectable: false
            interval: 1000
            services: ["feaa"]
            service_data: { "feaa": "00ed8b0ca750095477cb3e770123456789ab" }

          # Eddystone-URL: https://goo.gl/Aq18zF
          - id: eddystone-url
            address: "C0:FE:AA:00:00:02"
            connectable: false
            interval: 1000
            services: ["feaa"]
            service_data: { "feaa": "10ee03676f6f2e676c2f417131387a46" }

          # RuuviTag, data format 5: fills its advertisement to the last byte; its measurement number counts up
          - id: ruuvi
            address: "CB:B8:33:4C:88:4F"
            connectable: false
            rssi: -66
            rssi_jitter: 3
            interval: 1285
            manufacturer_data: { "0499": "0512fc5394c37c0004fffc040cac364200cdcbb8334c884f" }
            sequence: manufacturer_data/0499/18

          # BTHome v2 thermometer with a public address, as Xiaomi devices with other firmware have: 31.50 degrees
          - id: bthome
            name: ATC_5E07D3
            address: "A4:C1:38:5E:07:D3"
            address_type: public
            connectable: false
            rssi: -67
            interval: 2500
            service_data: { "fcd2": "40024e0c" }

          # BTHome v2 that says it sends on events only: below zero, packet 79, -14.0 degrees
          - id: bthome-event
            name: Freezer
            address: "A4:C1:38:00:00:02"
            address_type: public
            connectable: false
            interval: 3000
            service_data: { "fcd2": "44004f01642e3f4574ff" }

          # Govee hygrometer: known by its name and manufacturer data together
          - id: govee
            name: GVH5075_2233
            address: "A4:C1:38:00:22:33"
            address_type: public
            interval: 2000
            services: ["ec88"]
            manufacturer_data: { "ec88": "00811ef05a00" }

          # A phone: a private address that changes every quarter of a minute; must never leave anything retained
          - id: phone
            rotate: 15000
            rssi: -80
            rssi_jitter: 8
            interval: 300
            manufacturer_data: { "004c": "10050b1c6f4a2e" }

          # No name anywhere, only a service
          - id: nameless
            address: "C0:00:00:00:00:20"
            interval: 500
            services: ["180a"]
            gatt:
              - uuid: "180a"
                characteristics:
                  - { uuid: "2a29", properties: [read], text: "" }

          # A name that would break topics, JSON and terminals: wildcards, a separator and a tab
          - id: weird
            name: "a/b+c#d\te"
            address: "C0:00:00:00:00:21"
            interval: 500

          # --- Devices that one connects to

          # Heart rate strap: notifies once a second, is read and written; its battery is at 100 percent
          - id: strap
            name: "HR strap"
            address: "C0:00:00:00:00:01"
            appearance: "0341"
            tx_power: 4
            rssi_jitter: 3
            interval: 200
            services: ["180d", "180f"]
            gatt:
              - uuid: "180d"
                characteristics:
                  - { uuid: "2a37", properties: [notify], notify_every: 1000 }
                  - { uuid: "2a38", properties: [read], value: "01" }
                  - { uuid: "2a39", properties: [write], value: "00" }
              - uuid: "180f"
                characteristics:
                  - uuid: "2a19"
                    properties: [read, notify]
                    value: "64"
                    descriptors: [{ uuid: "2901", text: "Battery level" }]

          # Bulb: 128-bit UUIDs, and each way to write: command, request, both
          - id: bulb
            name: "Bulb"
            address: "C0:00:00:00:00:02"
            interval: 200
            services: ["0000ff00-5a3c-4c1e-9a0b-6f2d1e7c8b90"]
            gatt:
              - uuid: "0000ff00-5a3c-4c1e-9a0b-6f2d1e7c8b90"
                characteristics:
                  - { uuid: "0000ff01-5a3c-4c1e-9a0b-6f2d1e7c8b90", properties: [write-without-response], value: "00" }
                  - { uuid: "0000ff02-5a3c-4c1e-9a0b-6f2d1e7c8b90", properties: [read, write], value: "ffffff" }
                  - uuid: "0000ff03-5a3c-4c1e-9a0b-6f2d1e7c8b90"
                    properties: [read, write, write-without-response]
                    value: "80"

          # Key finder: immediate alert is written without a response
          - id: tag
            name: "Tag"
            address: "C0:00:00:00:00:03"
            rssi: -55
            interval: 300
            services: ["1802"]
            gatt:
              - uuid: "1802"
                characteristics:
                  - { uuid: "2a06", properties: [write-without-response], value: "00" }
              - uuid: "180f"
                characteristics:
                  - { uuid: "2a19", properties: [read, notify], value: "32" }

          # Lock that pairs without asking; its state is served to a paired peer only
          - id: lock
            name: "Lock"
            address: "C0:00:00:00:00:04"
            interval: 200
            pairing: just_works
            services: ["fff5"]
            gatt:
              - uuid: "fff5"
                characteristics:
                  - { uuid: "fff6", properties: [read, write], value: "01", encrypted: true }
                  - { uuid: "fff7", properties: [read], value: "02" }

          # The same with legacy pairing: the last bit of the address decides
          - id: lock-legacy
            name: "Old lock"
            address: "C0:00:00:00:00:05"
            interval: 200
            pairing: just_works
            services: ["fff5"]
            gatt:
              - uuid: "fff5"
                characteristics:
                  - { uuid: "fff6", properties: [read, write], value: "01", encrypted: true }

          # Safe that shows a passkey
          - id: safe
            name: "Safe"
            address: "C0:00:00:00:00:06"
            interval: 200
            pairing: passkey
            passkey: 123456
            services: ["fff5"]
            gatt:
              - uuid: "fff5"
                characteristics:
                  - { uuid: "fff6", properties: [read, write], value: "0badcafe", encrypted: true }

          # Twins: two characteristics of one UUID in a service, and that service twice; four that must be told apart
          - id: twins
            name: "Twins"
            address: "C0:00:00:00:00:08"
            interval: 200
            services: ["1802"]
            gatt:
              - uuid: "1802"
                characteristics:
                  - { uuid: "2a06", properties: [read, write, notify], value: "00" }
                  - { uuid: "2a06", properties: [read, write, notify], value: "01" }
              - uuid: "1802"
                characteristics:
                  - { uuid: "2a06", properties: [read, write, notify], value: "02" }
                  - { uuid: "2a06", properties: [read, write, notify], value: "03" }

          # A service that includes two others, one of them secondary
          - id: includer
            name: "Includer"
            address: "C0:00:00:00:00:09"
            interval: 300
            gatt:
              - uuid: "fff3"
                includes: [battery, hidden]
                characteristics:
                  - { uuid: "fff4", properties: [read], value: "01" }
              - uuid: "180f"
                id: battery
                characteristics:
                  - { uuid: "2a19", properties: [read], value: "2a" }
              - uuid: "fff8"
                id: hidden
                primary: false
                characteristics:
                  - { uuid: "fff9", properties: [read], value: "99" }

          # Accepts a link and never answers anything
          - id: mute
            name: "Mute"
            address: "C0:00:00:00:00:0A"
            interval: 300
            answers: false
            gatt:
              - uuid: "180f"
                characteristics:
                  - { uuid: "2a19", properties: [read], value: "01" }

          # Answers all but one characteristic, and refuses another with an error of its own
          - id: stubborn
            name: "Stubborn"
            address: "C0:00:00:00:00:0B"
            interval: 300
            gatt:
              - uuid: "ffe0"
                characteristics:
                  - { uuid: "ffe1", properties: [read, write], value: "01", answers: false }
                  - { uuid: "ffe2", properties: [read, write], value: "02", att_error: 128 }
                  - { uuid: "ffe3", properties: [read, write], value: "03" }

          # Drops its link three seconds after each connection
          - id: dropper
            name: "Dropper"
            address: "C0:00:00:00:00:0C"
            interval: 200
            drops_after: 3000
            gatt:
              - uuid: "180f"
                characteristics:
                  - { uuid: "2a19", properties: [read, notify], value: "05" }

          # Refuses every connection
          - id: refuser
            name: "Refuser"
            address: "C0:00:00:00:00:0D"
            interval: 300
            refuses: true

          # Values of 512 bytes, the longest there are: read in parts, written by prepared writes
          - id: large
            name: "Large"
            address: "C0:00:00:00:00:0E"
            interval: 200
            gatt:
              - uuid: "ffd0"
                characteristics:
                  - { uuid: "ffd1", properties: [read], length: 512 }
                  - { uuid: "ffd2", properties: [read, write], length: 512 }

          # Small packets: a peer that leaves the MTU at 23
          - id: narrow
            name: "Narrow"
            address: "C0:00:00:00:00:0F"
            interval: 300
            mtu: 23
            gatt:
              - uuid: "ffd0"
                characteristics:
                  - { uuid: "ffd1", properties: [read], length: 100 }
                  - { uuid: "ffd3", properties: [notify], value: "" }

          # Health thermometer: indicates, 36.6 degrees
          - id: thermometer
            name: "Thermometer"
            address: "C0:00:00:00:00:10"
            interval: 300
            services: ["1809"]
            gatt:
              - uuid: "1809"
                characteristics:
                  - { uuid: "2a1c", properties: [indicate], value: "066e0100ffe807021d173b3a02" }
                  - { uuid: "2a1d", properties: [read], value: "02" }

          # Environment sensor, silent until a control command makes it advertise
          - id: sleeper
            name: "Sleeper"
            address: "C0:00:00:00:00:11"
            interval: 200
            advertise: false
            services: ["181a"]
            gatt:
              - uuid: "181a"
                characteristics:
                  - { uuid: "2a6e", properties: [read, notify], value: "2cfb" }

          # Sends long texts in notifications, as the transfer examples of phones do; silent until a control command makes it
          # advertise. The one device with a descriptor that is written
          - id: courier
            name: "Courier"
            address: "C0:00:00:00:00:12"
            interval: 200
            advertise: false
            services: ["e20a39f4-73f5-4bc4-a12f-17d1ad07a961"]
            gatt:
              - uuid: "e20a39f4-73f5-4bc4-a12f-17d1ad07a961"
                characteristics:
                  - uuid: "08590f7e-db05-467e-8757-72f6faeb13d4"
                    properties: [notify]
                    descriptors: [{ uuid: "2901", text: "Text", writable: true }]

          # Twenty alike, for load: many links, many notifications
          - id: node
            count: 20
            name: "node-{n}"
            address: "C0:00:00:00:01:00"
            rssi: -70
            rssi_jitter: 6
            interval: 500
            services: ["fff0"]
            gatt:
              - uuid: "fff0"
                characteristics:
                  - { uuid: "fff1", properties: [read, notify], value: "00000000" }
                  - { uuid: "fff2", properties: [read, write, write-without-response], value: "00" }
        """#
}
