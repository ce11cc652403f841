import XCTest

@testable import DeviceDiscovery

final class StrategyTests: XCTestCase {
    private func delays(_ strategy: ReconnectionStrategy) -> [TimeInterval?] {
        (0...5).map { strategy.delay(beforeAttempt: $0) }
    }

    func testDelaysAndTheirLimits() {
        XCTAssertEqual(delays(.none), [nil, nil, nil, nil, nil, nil])
        XCTAssertEqual(delays(.linear(interval: 2, limit: 3)), [nil, 2, 2, 2, nil, nil])
        XCTAssertEqual(delays(.exponential(initial: 1, maximum: 5, limit: 4)), [nil, 1, 2, 4, 5, nil])
    }

    func testNonsenseIsBounded() {
        XCTAssertEqual(ReconnectionStrategy.linear(interval: -1, limit: 1).delay(beforeAttempt: 1), 0)
        XCTAssertEqual(ReconnectionStrategy.linear(interval: .nan, limit: 1).delay(beforeAttempt: 1), 0)
        let endless = ReconnectionStrategy.exponential(initial: .infinity, maximum: .infinity, limit: .max)
        XCTAssertEqual(endless.delay(beforeAttempt: .max), 31_536_000)
        XCTAssertNil(ReconnectionStrategy.linear(interval: 1, limit: -5).delay(beforeAttempt: 1))
    }
}
