"""What E2B measured, added up."""

from sandyard.runtime.e2b.control import Measurement
from sandyard.runtime.e2b.machines import cpu_seconds


def measured(at: float, percent: float) -> Measurement:
    return Measurement(at=at, cpu_count=4, cpu_used_pct=percent, memory_bytes=0)


def test_the_shares_of_the_processors_add_up_to_seconds() -> None:
    assert cpu_seconds([measured(105, 50), measured(110, 100)], since_at=100) == 10 + 20
    assert cpu_seconds([measured(95, 50), measured(110, 10)], since_at=100) == 4
    assert cpu_seconds([], since_at=100) == 0
