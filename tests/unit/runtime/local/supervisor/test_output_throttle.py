"""How much of a processor goes into reading what a machine writes."""

from sandyard.runtime.local.supervisor.output import OutputThrottle


class Times:
    def __init__(self) -> None:
        self.now = self.used = 0.0

    def work(self, sec: float) -> None:
        self.now += sec
        self.used += sec


def test_a_burst_is_free_and_a_flood_takes_a_quarter_of_a_processor() -> None:
    times = Times()
    pace = OutputThrottle(lambda: times.used, lambda: times.now)
    times.work(0.1)
    assert pace.pause_sec() == 0
    while times.now < 60:
        times.work(0.001)
        times.now += pace.pause_sec()
    assert 0.24 < times.used / times.now < 0.26


def test_who_was_quiet_for_long_has_saved_nothing_up() -> None:
    times = Times()
    pace = OutputThrottle(lambda: times.used, lambda: times.now)
    times.now += 3600
    assert pace.pause_sec() == 0
    times.work(0.2)
    assert pace.pause_sec() > 0.5
