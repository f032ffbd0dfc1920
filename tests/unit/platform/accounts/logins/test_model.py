"""Failed logins: what counts by what, and when it is too much."""

from datetime import UTC, datetime, timedelta

import pytest

from sandyard.kit.errors import RateLimitedError
from sandyard.kit.rates import Rate
from sandyard.platform.accounts.logins.model import (
    Counter,
    Counts,
    Failures,
    LoginAttempt,
    LoginLimits,
    admit_attempt,
    forgive_attempt,
)

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LIMITS = LoginLimits(Rate(2, MINUTE), Rate(3, 2 * MINUTE), Rate(4, 3 * MINUTE))


def admit(
    counts: Counts, *, is_known: bool = False, now: datetime = NOW
) -> dict[Counter, Failures]:
    return admit_attempt(counts, LIMITS, is_known=is_known, now=now)


def test_a_first_attempt_begins_a_window_of_each_kind() -> None:
    assert admit({}) == {
        Counter.PAIR: Failures(1, NOW + MINUTE),
        Counter.NETWORK: Failures(1, NOW + 2 * MINUTE),
        Counter.LOGIN: Failures(1, NOW + 3 * MINUTE),
    }


def test_a_window_keeps_its_end_and_is_over_at_it() -> None:
    end = NOW + MINUTE
    there = {Counter.PAIR: Failures(1, end)}
    assert admit(there)[Counter.PAIR] == Failures(2, end)
    last = end - timedelta(microseconds=1)
    assert admit(there, now=last)[Counter.PAIR] == Failures(2, end)
    assert admit(there, now=end)[Counter.PAIR] == Failures(1, end + MINUTE)


@pytest.mark.parametrize(
    ("counter", "limit"), [(Counter.PAIR, 2), (Counter.NETWORK, 3), (Counter.LOGIN, 4)]
)
def test_one_too_many_of_any_kind_is_refused_until_its_window_ends(
    counter: Counter, limit: int
) -> None:
    ends_at = NOW + timedelta(seconds=29.5)
    admit({counter: Failures(limit - 1, ends_at)})
    with pytest.raises(RateLimitedError) as refused:
        admit({counter: Failures(limit, ends_at)})
    assert refused.value.retry_after == 30


def test_where_the_account_has_logged_in_before_only_the_pair_counts() -> None:
    full = {Counter.NETWORK: Failures(99, NOW + MINUTE), Counter.LOGIN: Failures(99, NOW + MINUTE)}
    assert admit(full, is_known=True) == {Counter.PAIR: Failures(1, NOW + MINUTE)}
    with pytest.raises(RateLimitedError):
        admit({Counter.PAIR: Failures(2, NOW + MINUTE)}, is_known=True)


def test_a_success_takes_back_what_its_attempt_counted_and_no_more() -> None:
    counts = {each: Failures(2, NOW + MINUTE) for each in Counter}
    forgiven = forgive_attempt(counts, frozenset(Counter))
    assert {each: failures.count for each, failures in forgiven.items()} == {
        Counter.PAIR: 0,
        Counter.NETWORK: 1,
        Counter.LOGIN: 1,
    }
    assert forgive_attempt(counts, {Counter.PAIR}).keys() == {Counter.PAIR}


def test_keys_tell_pairs_apart_and_names_in_capitals_not() -> None:
    ann = LoginAttempt("Ann", "192.0.2.1").keys
    assert ann == LoginAttempt("aNN", "192.0.2.1").keys
    elsewhere = LoginAttempt("ann", "192.0.2.2").keys
    assert ann[Counter.LOGIN] == elsewhere[Counter.LOGIN]
    assert ann[Counter.PAIR] != elsewhere[Counter.PAIR]
    assert len({*ann.values(), *elsewhere.values()}) == 5
