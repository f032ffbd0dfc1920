"""How long E2B is left alone after a refusal."""

import asyncio

import pytest

from sandyard.runtime.remote.backoff import Backoff, SandboxBackoffs
from sandyard.runtime.remote.errors import BackingOffError
from tests.support.clocks import ManualClock


def backoff(clock: ManualClock, chance: float = 1.0) -> Backoff:
    return Backoff(first_sec=0.25, longest_sec=8, now=clock.now, chance=lambda: chance)


def refuse(backoff: Backoff, retry_after: int | None = None) -> float:
    backoff.refused("failed", retry_after=retry_after, sent_at=backoff.sending_at())
    return backoff.left_sec


def test_pauses_double_up_to_the_longest_and_begin_anew_after_an_answer() -> None:
    clock = ManualClock(1000)
    it = backoff(clock)
    pauses = []
    for _ in range(8):
        pauses.append(refuse(it))
        clock.advance(pauses[-1])
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 8, 8]
    it.answered()
    assert refuse(it) == 0.25


def test_half_of_a_pause_is_chance() -> None:
    assert refuse(backoff(ManualClock(1000), chance=0)) == 0.125
    assert refuse(backoff(ManualClock(1000), chance=0.5)) == pytest.approx(0.1875)


def test_what_was_under_way_together_counts_once() -> None:
    clock = ManualClock(1000)
    it = backoff(clock)
    sent_at = it.sending_at()
    for _ in range(50):
        it.refused("rate_limited", retry_after=None, sent_at=sent_at - 1)
        it.refused("failed", retry_after=None, sent_at=sent_at)
        it.refused("failed", retry_after=None, sent_at=sent_at)
    assert it.left_sec == 0.25


@pytest.mark.parametrize(("named", "pause"), [(1, 1), (17, 17), (60, 60), (3600, 60)])
def test_the_time_that_e2b_names_is_kept_up_to_a_minute(named: int, pause: float) -> None:
    clock = ManualClock(1000)
    it = backoff(clock)
    assert refuse(it, named) == pause
    assert refuse(it) == pause, "a shorter pause does not end it sooner"
    clock.advance(pause)
    assert it.left_sec == 0


async def test_who_has_no_time_to_wait_is_told_at_once_how_long_it_is() -> None:
    clock = ManualClock(1000)
    it = backoff(clock)
    await it.wait(within_sec=0)
    it.refused("rate_limited", retry_after=17, sent_at=clock.now())
    clock.advance(0.5)
    with pytest.raises(BackingOffError) as told:
        await it.wait(within_sec=10)
    assert (told.value.refusal, told.value.retry_after) == ("rate_limited", 17)


async def test_who_has_the_time_waits() -> None:
    it = Backoff(first_sec=0.02, longest_sec=0.02)
    began = asyncio.get_running_loop().time()
    it.refused("failed", retry_after=None, sent_at=it.sending_at())
    await it.wait(within_sec=5)
    assert it.left_sec == 0
    assert asyncio.get_running_loop().time() - began >= 0.009


def test_each_sandbox_has_one_of_its_own_with_the_same_pauses() -> None:
    clock = ManualClock(1000)
    each = SandboxBackoffs(backoff(clock))
    assert refuse(each.of("one")) == 0.25
    assert each.of("one") is each.of("one")
    assert each.of("two").left_sec == 0
    assert refuse(each.of("two")) == 0.25


def test_of_thousands_of_sandboxes_only_what_was_refused_lately_is_remembered() -> None:
    clock = ManualClock(1000)
    each = SandboxBackoffs(backoff(clock))
    first = each.of("first")
    refuse(first)
    clock.advance(61)
    lately = each.of("lately")
    refuse(lately)
    for number in range(2000):
        each.of(str(number))
    assert each.of("lately") is lately
    assert each.of("first") is not first
