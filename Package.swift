// swift-tools-version: 6.0
import PackageDescription

// Modules import only those above them in this list; scripts/check-imports holds them to it.

let settings: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
    .enableUpcomingFeature("MemberImportVisibility"),
]

/// A C library of the system behind one Swift wrapper.
func system(_ name: String, pkgConfig: String? = nil, apt: [String] = []) -> Target {
    .systemLibrary(name: name, pkgConfig: pkgConfig, providers: apt.isEmpty ? nil : [.apt(apt)])
}

func module(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .target(name: name, dependencies: dependencies, swiftSettings: settings)
}

func tests(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
    .testTarget(name: name + "Tests", dependencies: dependencies + ["TestKit"], swiftSettings: settings)
}

let package = Package(
    name: "blueferry",
    products: [
        .executable(name: "blueferry", targets: ["blueferry"]),
        .library(name: "CoreBluetooth", targets: ["CoreBluetooth"]),
        .library(name: "DeviceDiscovery", targets: ["DeviceDiscovery"]),
        .library(name: "os", targets: ["os"]),
    ],
    targets: [
        // C libraries
        system("CLinux"),
        system("CMapping"),
        system("CDBus", pkgConfig: "dbus-1", apt: ["libdbus-1-dev"]),
        system("CMosquitto", pkgConfig: "libmosquitto", apt: ["libmosquitto-dev"]),
        system("CYAML", pkgConfig: "yaml-0.1", apt: ["libyaml-dev"]),
        system("CJSON", pkgConfig: "jansson", apt: ["libjansson-dev"]),
        system("CSQLite", pkgConfig: "sqlite3", apt: ["libsqlite3-dev"]),
        system("CPattern", pkgConfig: "libpcre2-8", apt: ["libpcre2-dev"]),

        // Foundations: one wrapper for each C library, and values without I/O
        module("EventLoop", ["CLinux"]),
        module("DBus", ["CDBus", "EventLoop"]),
        module("MQTT", ["CMosquitto", "EventLoop"]),
        module("YAML", ["CYAML"]),
        module("JSON", ["CJSON"]),
        module("Store", ["CSQLite", "CMapping"]),
        module("Pattern", ["CPattern"]),
        module("Bluetooth", []),

        // The engine
        module("BlueZ", ["DBus", "Bluetooth", "EventLoop"]),
        module("Central", ["BlueZ", "Bluetooth", "Pattern", "EventLoop"]),

        // The libraries for Swift programs
        system("CoreBluetoothSubmodules"),
        module("CoreBluetooth", ["CoreBluetoothSubmodules", "Central", "Bluetooth", "EventLoop"]),
        module("DeviceDiscovery", ["CoreBluetooth"]),
        system("OSSubmodules"),
        module("os", ["OSSubmodules"]),

        // Programs in the shapes that the textbooks of Apple's API use
        .executableTarget(name: "AlertAndBattery", dependencies: ["CoreBluetooth"], path: "Examples/AlertAndBattery"),
        .executableTarget(name: "Thermometer", dependencies: ["CoreBluetooth"], path: "Examples/Thermometer"),
        .executableTarget(name: "LongTransfer", dependencies: ["CoreBluetooth"], path: "Examples/LongTransfer"),
        .executableTarget(name: "IdleScan", dependencies: ["CoreBluetooth"], path: "Benchmarks/IdleScan"),

        // The bridge
        module("Configuration", ["YAML", "Bluetooth"]),
        module("Bridge", ["Central", "Bluetooth", "MQTT", "Store", "JSON", "Configuration", "EventLoop"]),
        module("BlueZSimulator", ["DBus", "Bluetooth", "YAML", "JSON", "EventLoop"]),
        module("Sandbox", ["EventLoop"]),
        .executableTarget(
            name: "blueferry",
            dependencies: ["Bridge", "Configuration", "BlueZSimulator", "Sandbox", "Bluetooth", "EventLoop"],
            // A link to config/fleet.yaml: the program carries the demo's fleet.
            resources: [.embedInCode("Resources/fleet.yaml")],
            swiftSettings: settings),

        // Benchmarks: scripts/bench
        .target(name: "BenchmarkCounters", path: "Benchmarks/Counters"),
        .executableTarget(
            name: "MicroBenchmarks",
            dependencies: [
                "BenchmarkCounters", "Bridge", "Central", "BlueZ", "DBus", "MQTT", "Bluetooth", "JSON", "EventLoop",
            ],
            path: "Benchmarks/Micro", swiftSettings: settings),
        .executableTarget(
            name: "EndToEndBenchmarks", dependencies: ["TestKit", "Sandbox", "JSON", "EventLoop"],
            path: "Benchmarks/EndToEnd", swiftSettings: settings),

        // Tests, from the inside out
        module(
            "TestKit",
            [
                "EventLoop", "DBus", "MQTT", "JSON", "YAML", "Sandbox", "BlueZSimulator", "CoreBluetooth",
                "DeviceDiscovery",
            ]),
        // What runs for minutes: the fault matrix and the soak
        .target(
            name: "EnduranceKit", dependencies: ["TestKit", "EventLoop", "JSON", "MQTT", "Sandbox"],
            path: "Endurance/Harness", swiftSettings: settings),
        .executableTarget(
            name: "endurance", dependencies: ["EnduranceKit", "EventLoop"], path: "Endurance/Program",
            swiftSettings: settings),
        tests("Endurance", ["EnduranceKit"]),

        tests("EventLoop", ["EventLoop"]),
        tests("DBus", ["DBus", "EventLoop", "Sandbox"]),
        tests("MQTT", ["MQTT", "EventLoop", "Sandbox"]),
        tests("YAML", ["YAML"]),
        tests("JSON", ["JSON"]),
        tests("Store", ["Store"]),
        tests("Pattern", ["Pattern"]),
        tests("Bluetooth", ["Bluetooth"]),
        tests("BlueZ", ["BlueZ", "DBus", "Bluetooth", "EventLoop", "Sandbox"]),
        tests("Central", ["Central", "BlueZ", "Bluetooth", "DBus", "EventLoop", "BlueZSimulator", "JSON", "Sandbox"]),
        tests("CoreBluetooth", ["CoreBluetooth", "Bluetooth", "EventLoop"]),
        tests("DeviceDiscovery", ["DeviceDiscovery", "CoreBluetooth", "EventLoop"]),
        tests("os", ["os"]),
        tests("Configuration", ["Configuration", "Bluetooth"]),
        tests(
            "Bridge",
            [
                "blueferry", "Bridge", "Configuration", "Central", "Bluetooth", "MQTT", "Store", "JSON", "EventLoop",
                "Sandbox",
            ]),
        tests("BlueZSimulator", ["BlueZSimulator", "Bluetooth", "DBus", "EventLoop", "JSON", "Sandbox", "YAML"]),
        tests("Sandbox", ["Sandbox", "EventLoop"]),
        tests(
            "Contract",
            [
                "CoreBluetooth", "DeviceDiscovery", "MQTT", "JSON", "EventLoop", "Sandbox", "DBus", "AlertAndBattery",
                "Thermometer", "LongTransfer",
            ]),
        tests("Program", ["MQTT", "Store", "JSON", "EventLoop", "Sandbox"]),
    ],
    swiftLanguageModes: [.v6]
)

// scripts/fuzz builds the fuzzers, with compiler options that nothing else is built with.
if Context.environment["BLUEFERRY_FUZZ"] != nil {
    package.targets.append(
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "EventLoop", "DBus", "BlueZ", "MQTT", "JSON", "Pattern", "Bluetooth", "Configuration", "Bridge",
                "BlueZSimulator",
            ],
            path: "Fuzz", exclude: ["corpus"], swiftSettings: settings))
}
