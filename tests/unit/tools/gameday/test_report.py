"""The report of a game day and its verdict."""

from dataclasses import replace

from sandyard.tools.gameday.model import OF_BROKER, Engine, Fault, Promise, Scenario
from sandyard.tools.gameday.promises import Call, Violation
from sandyard.tools.gameday.report import Outcome, lines

SCENARIO = Scenario("some-fault", "It breaks.", Fault.SERVER_KILLED, alerts=("Down",))
CALLS = (
    Call("claim", "a", 201, "", "1", 0.1, 0.2),
    Call("claim", "b", 503, "", None, 1.1, 1.6),
    Call("claim", "a", 200, "", "1", 1.2, 1.3, is_audit=True),
)
OUTCOME = Outcome(
    SCENARIO,
    Engine.SQLITE,
    CALLS,
    phases={0: "calm", 1: "fault"},
    firing={0: frozenset(), 1: frozenset({"Down", "Slow"})},
    violations=(),
    alerts_watched=True,
)


def test_every_second_is_a_line_with_its_phase_counts_and_alerts() -> None:
    told = [*lines(OUTCOME)]
    first, second = (line.split() for line in told[3:5])
    assert first == ["0", "calm", "1", "0", "0", "0", "0", "0", "100", "ms"]
    assert second == ["1", "fault", "0", "0", "0", "0", "1", "0", "500", "ms", "Down", "Slow"]


def test_it_passes_when_the_promises_held_and_the_alerts_fired() -> None:
    assert OUTCOME.has_passed
    told = [*lines(OUTCOME)]
    assert told[-1] == "Verdict: passed"
    assert "alert   Down fired at second 1" in told
    assert "alerts  also fired: Slow" in told
    assert sum(line.startswith("held") for line in told) == len(OF_BROKER)


def test_an_alert_that_did_not_fire_fails_it() -> None:
    silent = replace(OUTCOME, firing={0: frozenset()})
    assert not silent.has_passed
    assert "alert   Down did NOT fire" in [*lines(silent)]


def test_an_alert_that_fired_before_the_fault_alone_counts_for_nothing() -> None:
    early = replace(OUTCOME, firing={0: frozenset({"Down"}), 1: frozenset()})
    assert early.missing_alerts == ("Down",)
    assert "alert   Down did NOT fire" in [*lines(early)]


def test_without_prometheus_the_promises_alone_decide_and_it_says_so() -> None:
    unwatched = replace(OUTCOME, firing={}, alerts_watched=False)
    assert unwatched.has_passed
    assert any(line.startswith("alerts  not watched") for line in lines(unwatched))


def test_a_broken_promise_fails_it_and_shows_the_first_of_what_broke_it() -> None:
    found = tuple(Violation(Promise.ONE_OWNER, f"sandbox {each}") for each in range(7))
    told = [*lines(replace(OUTCOME, violations=found))]
    assert told[-1] == "Verdict: FAILED"
    assert f"BROKEN  {Promise.ONE_OWNER}" in told
    assert "        sandbox 4" in told
    assert "        and 2 more" in told
