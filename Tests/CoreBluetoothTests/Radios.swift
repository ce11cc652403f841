import TestKit

/// The radio of the tests.
enum Radios {
    static let fleet = """
        devices:
          - id: strap
            name: HR strap
            address: "C0:00:00:00:00:01"
            interval: 50
            rssi: -58
            tx_power: 4
            services: ["180d", "180f"]
            manufacturer_data: { "0499": "0512fc" }
            gatt:
              - uuid: "180d"
                includes: [bat]
                characteristics:
                  - { uuid: "2a37", properties: [notify], value: "0648" }
                  - { uuid: "2a39", properties: [write], value: "00" }
              - uuid: "180f"
                id: bat
                characteristics:
                  - uuid: "2a19"
                    properties: [read, notify]
                    value: "64"
                    descriptors: [ { uuid: "2901", text: "Level", writable: true } ]
              - uuid: "1802"
                characteristics:
                  - { uuid: "2a06", properties: [write-without-response], value: "00" }
              - uuid: "ff00"
                characteristics:
                  - { uuid: "ff01", properties: [read, write], value: "00", att_error: 128 }
                  - { uuid: "ff02", properties: [read, write], length: 512 }
          - id: tag
            name: Tag
            address: "C0:00:00:00:00:02"
            interval: 50
            services: ["1802"]
          - id: silent
            address: "C0:00:00:00:00:03"
            advertise: false
        """
}
