"""How many logins may fail before they are refused, decided without any I/O.

Failures are counted for each pair of login and network, so that a stranger's never lock the owner
out elsewhere. All failures of one network, and of one login from anywhere, are limited too, except
where the account has logged in before. A login counts as it was typed: counted by account, the
refusal of a name would reveal which address it has.
"""

import hashlib
import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from sandyard.kit.errors import RateLimitedError
from sandyard.kit.rates import Rate

KNOWN_FOR = timedelta(days=90)
"""How long a network stays known after the account's last login from it."""
KNOWN_NETWORKS = 50
"""The maximum of known networks per account; the newest are retained."""


class Counter(StrEnum):
    PAIR = "pair"
    NETWORK = "network"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures in a window of time that is not over."""

    count: int
    window_ends_at: datetime


Counts = Mapping[Counter, Failures]


@dataclass(frozen=True, slots=True)
class LoginLimits:
    per_pair: Rate
    per_network: Rate
    per_login: Rate

    def of(self, counter: Counter) -> Rate:
        return {
            Counter.PAIR: self.per_pair,
            Counter.NETWORK: self.per_network,
            Counter.LOGIN: self.per_login,
        }[counter]


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A login attempt: the login as it was typed, and the network."""

    login: str
    network: str

    @property
    def keys(self) -> Mapping[Counter, str]:
        """The key of each counter. Hashed: people type passwords where a name belongs."""
        login = self.login.lower()
        return {
            Counter.PAIR: _key(Counter.PAIR, login, self.network),
            Counter.NETWORK: _key(Counter.NETWORK, self.network),
            Counter.LOGIN: _key(Counter.LOGIN, login),
        }


def admit_attempt(
    counts: Counts, limits: LoginLimits, *, is_known: bool, now: datetime
) -> dict[Counter, Failures]:
    """The counts as if this attempt had failed; RateLimitedError if it is over a limit, and then it
    does not count. `is_known`: the account has logged in from this network."""
    counters = (Counter.PAIR,) if is_known else tuple(Counter)
    there = {each: counts[each] for each in counters if _holds(counts.get(each), now)}
    waits = [
        failures.window_ends_at - now
        for each, failures in there.items()
        if failures.count >= limits.of(each).amount
    ]
    if waits:
        raise RateLimitedError(
            "Too many failed logins. Wait `retry_after` seconds.",
            retry_after=math.ceil(max(waits).total_seconds()),
        )
    begun = {each: Failures(0, now + limits.of(each).window) for each in counters}
    return {each: _with(failures, 1) for each, failures in (begun | there).items()}


def forgive_attempt(counts: Counts, counters: AbstractSet[Counter]) -> dict[Counter, Failures]:
    """The counts after a successful attempt that was counted by these: the pair restarts at zero,
    the others lose this attempt."""
    return {
        each: _with(failures, -failures.count if each is Counter.PAIR else -1)
        for each, failures in counts.items()
        if each in counters
    }


def _holds(failures: Failures | None, now: datetime) -> bool:
    return failures is not None and now < failures.window_ends_at


def _with(failures: Failures, more: int) -> Failures:
    return Failures(max(0, failures.count + more), failures.window_ends_at)


def _key(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()
