"""Which provider a pool belongs to, and keeping the pool's size: when it is low, and how many
sandboxes to create. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar
from urllib.parse import urlsplit

from sandyard.broker.pool.model import seconds_of
from sandyard.broker.provider.errors import ProviderChangeRefusedError, ProviderMismatchError
from sandyard.broker.reservations.model import Reservation
from sandyard.kit.changes.transitions import Cause, Transition, changed, created

SIMULATED = "simulated"
HOUR_SEC = 3600
SETTLE_SEC = 120
"""How long a creation whose response was lost may still be in progress."""
FAILING_SYNCS = 3
"""This many failures in a row are reported."""
MOST_AT_ONCE = 20
COUNTED_AFTER_SEC = 5
"""How long after a creation the pool's counts include it, on an engine that counts by an index."""


@dataclass(frozen=True, slots=True)
class ProviderBinding:
    """The provider that the pool belongs to."""

    SUBJECT: ClassVar[str] = "pool"
    OWNER: ClassVar[str | None] = None

    provider: str
    pool: str = "pool"
    sequence: int = 0


def provider_name(base_url: str | None) -> str:
    """The name by which a pool identifies its provider: its address, without credentials."""
    if base_url is None:
        return SIMULATED
    url = urlsplit(base_url)
    address = url.netloc.rpartition("@")[2].lower()
    return f"{url.scheme.lower()}://{address}{url.path.rstrip('/')}"


def require_same_provider(bound: ProviderBinding, configured: str) -> None:
    if bound.provider != configured:
        raise ProviderMismatchError(bound.provider, configured)


def decide_first_provider(configured: str, *, cause: Cause) -> Transition[ProviderBinding]:
    return created(ProviderBinding(configured), "pool.provider_set", cause)


def decide_provider_change(
    bound: ProviderBinding | None, configured: str, *, has_rows: bool, cause: Cause
) -> Transition[ProviderBinding] | None:
    """An operator binds the pool to this provider; None if it already is.

    A real provider may have a new address. Simulated sandboxes never become a real provider's.
    """
    if bound is None:
        if has_rows and configured == SIMULATED:
            raise ProviderChangeRefusedError
        return decide_first_provider(configured, cause=cause)
    if bound.provider == configured:
        return None
    if has_rows and SIMULATED in (bound.provider, configured):
        raise ProviderChangeRefusedError
    return changed(bound, replace(bound, provider=configured), "pool.provider_changed", cause)


class Level(StrEnum):
    OK = "ok"
    LOW = "low"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    min_available: int = 0
    """How many sandboxes to keep available, beyond what reservations lack; 0 creates none for
    that."""
    max_total: int | None = None
    low_available: int = 5
    """The pool is low with this many available or fewer."""
    per_hour: int = 60
    lookahead_sec: int = 1800
    backoff_base_sec: float = 60
    backoff_max_sec: float = 3600

    @property
    def recovered_available(self) -> int:
        """A low or empty pool is OK again with this many available."""
        return self.low_available + self.low_available // 2 + 1


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """The autoscaler's state; a pool has one."""

    SUBJECT: ClassVar[str] = "autoscaler"
    OWNER: ClassVar[str | None] = None

    autoscaler: str = "autoscaler"
    level: str = Level.OK.value
    asked: str = ""
    """Space-separated names of sandboxes that were requested from the provider and whose outcome is
    unknown."""
    asked_at: int = 0
    """Time of the last request to the provider."""
    window_at: int = 0
    created: int = 0
    """How many were requested since `window_at`."""
    failures: int = 0
    """Consecutive failed creations."""
    next_attempt_at: int = 0
    is_stuck: bool = False
    """It was reported that the missing sandboxes will not be created."""
    sync_failures: int = 0
    sequence: int = 0

    @property
    def names(self) -> list[str]:
        return self.asked.split()

    def is_counted(self, counted_at: int | None) -> bool:
        """Whether counts taken at this time (None: now) include everything that was created."""
        return counted_at is None or counted_at >= self.asked_at + COUNTED_AFTER_SEC


def level_of(available: int, policy: AutoscalingPolicy) -> Level:
    if available == 0:
        return Level.EMPTY
    return Level.LOW if available <= policy.low_available else Level.OK


def lacking(reservations: Iterable[Reservation], *, now: int, lookahead_sec: int) -> int:
    """How many sandboxes reservations lack now, or will lack within the lookahead."""
    soon = now + lookahead_sec
    return sum(
        each.missing for each in reservations if not each.is_over(now) and each.starts_at <= soon
    )


def to_create(
    autoscaler: Autoscaler,
    policy: AutoscalingPolicy,
    *,
    available: int,
    total: int,
    lacking: int,
    now: int,
) -> int:
    """How many to request now: what is missing, within the limits of size, budget and back-off."""
    missing = policy.min_available + lacking - available - len(autoscaler.names)
    if missing <= 0 or now < autoscaler.next_attempt_at:
        return 0
    left = policy.per_hour - (autoscaler.created if now < autoscaler.window_at + HOUR_SEC else 0)
    room = missing if policy.max_total is None else policy.max_total - total - len(autoscaler.names)
    return max(0, min(missing, left, room, MOST_AT_ONCE))


def decide_level(
    autoscaler: Autoscaler | None, available: int, policy: AutoscalingPolicy, cause: Cause
) -> Transition[Autoscaler] | None:
    """The pool becomes low, empty or OK; None if its level does not change. It gets better only by
    becoming OK, with half as many again as the threshold: a pool around the threshold, or around
    zero, is reported once."""
    before, level = autoscaler or Autoscaler(), level_of(available, policy)
    is_better = _WORSE.index(level) < _WORSE.index(Level(before.level))
    if level == before.level or (is_better and available < policy.recovered_available):
        return None
    kind = "pool.recovered" if level is Level.OK else f"pool.{level}"
    is_stuck = before.is_stuck and level is not Level.OK
    after = replace(before, level=level.value, is_stuck=is_stuck)
    decided = _put(autoscaler, after, kind, cause)
    numbers = {"available": available, "threshold": policy.low_available}
    events = tuple(replace(each, data={**each.data, **numbers}) for each in decided.events)
    return replace(decided, events=events)


_WORSE = (Level.OK, Level.LOW, Level.EMPTY)
"""Each is worse than the one before."""


def decide_asked(
    autoscaler: Autoscaler | None, names: Sequence[str], cause: Cause
) -> Transition[Autoscaler]:
    """Record the names before they are requested, so that a sandbox whose response is lost is
    found."""
    before, now = autoscaler or Autoscaler(), seconds_of(cause)
    is_new = now >= before.window_at + HOUR_SEC
    after = replace(
        before,
        asked=" ".join([*before.names, *names]),
        asked_at=now,
        window_at=now if is_new else before.window_at,
        created=len(names) + (0 if is_new else before.created),
        is_stuck=False,
    )
    return _put(autoscaler, after, "pool.creating", cause)


def decide_settled(
    autoscaler: Autoscaler, known: Iterable[str], cause: Cause
) -> Transition[Autoscaler] | None:
    """The outcome of these names is known; None if it was known before."""
    left = _without(autoscaler, known)
    if left == autoscaler.asked:
        return None
    return changed(autoscaler, replace(autoscaler, asked=left), "pool.settled", cause)


def decide_answered(
    autoscaler: Autoscaler,
    known: Iterable[str],
    cause: Cause,
    *,
    failure: str | None,
    policy: AutoscalingPolicy,
) -> Transition[Autoscaler]:
    """The provider created all of them, or failed at one. After a failure the back-off doubles."""
    left = _without(autoscaler, known)
    now = seconds_of(cause)
    if failure is not None:
        wait = min(policy.backoff_base_sec * 2**autoscaler.failures, policy.backoff_max_sec)
        after = replace(
            autoscaler,
            asked=left,
            asked_at=now,
            failures=autoscaler.failures + 1,
            next_attempt_at=now + round(wait),
        )
        return changed(autoscaler, after, "pool.creation_failed", cause.because(failure))
    after = replace(autoscaler, asked=left, asked_at=now, failures=0, next_attempt_at=0)
    return changed(autoscaler, after, "pool.created", cause)


def _without(autoscaler: Autoscaler, names: Iterable[str]) -> str:
    gone = set(names)
    return " ".join(each for each in autoscaler.names if each not in gone)


def decide_stuck(
    autoscaler: Autoscaler | None, missing: int, obstacle: str | None, cause: Cause
) -> Transition[Autoscaler] | None:
    """Sandboxes are missing and the obstacle prevents their creation, or none is missing any more.
    None if that was reported before."""
    before = autoscaler or Autoscaler()
    if missing and obstacle and not before.is_stuck:
        why = cause.because(f"{obstacle}, and {missing} are missing")
        return _put(autoscaler, replace(before, is_stuck=True), "pool.cannot_grow", why)
    if before.is_stuck and not missing:
        return _put(autoscaler, replace(before, is_stuck=False), "pool.sufficient", cause)
    return None


def decide_sync(
    autoscaler: Autoscaler | None, failure: str | None, cause: Cause
) -> Transition[Autoscaler] | None:
    """A sync has failed or succeeded; None if nothing changes."""
    before = autoscaler or Autoscaler()
    if failure is None:
        if not before.sync_failures:
            return None
        kind = "sync.recovered" if before.sync_failures >= FAILING_SYNCS else "sync.succeeded"
        return _put(autoscaler, replace(before, sync_failures=0), kind, cause)
    failures = before.sync_failures + 1
    if failures > FAILING_SYNCS:
        return None
    kind = "sync.failing" if failures == FAILING_SYNCS else "sync.failed"
    after = replace(before, sync_failures=failures)
    return _put(autoscaler, after, kind, cause.because(failure))


def _put(
    autoscaler: Autoscaler | None, after: Autoscaler, kind: str, cause: Cause
) -> Transition[Autoscaler]:
    return (
        created(after, kind, cause)
        if autoscaler is None
        else changed(autoscaler, after, kind, cause)
    )
