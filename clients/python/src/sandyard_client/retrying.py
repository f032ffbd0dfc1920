"""Which requests are retried, and after which delay; pure decisions."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sandyard_client.wire import Answer, Lost, Request

_NOT_DECIDED = frozenset({408, 425, 429})
_NEVER_BETTER = frozenset({501, 505})


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays double from `first_delay_sec` to `longest_delay_sec`, with half of each as jitter; the
    server's `Retry-After` is the minimum."""

    within_sec: float = 60.0
    """Counted from the first attempt; no attempt starts later."""
    first_delay_sec: float = 0.2
    longest_delay_sec: float = 8.0


def may_repeat(request: Request, outcome: Answer | Lost) -> bool:
    """A repeatable request, after any failure that may be temporary. Any other only if it was
    certainly not carried out: it never reached the server, or was refused by a rate limit."""
    if isinstance(outcome, Lost):
        return request.is_repeatable or not outcome.was_sent
    if outcome.status == 429:
        return True
    if not request.is_repeatable or outcome.status in _NEVER_BETTER:
        return False
    return outcome.status in _NOT_DECIDED or outcome.status >= 500


def delay_before(
    attempt: int,
    outcome: Answer | Lost,
    policy: RetryPolicy,
    *,
    now: datetime,
    draw: Callable[[float, float], float] = random.uniform,
) -> float:
    """Seconds to wait before this attempt; the first retry has number 1."""
    longest = min(policy.longest_delay_sec, policy.first_delay_sec * 2 ** min(attempt - 1, 30))
    delay = draw(longest / 2, longest)
    asked = outcome.retry_after(now) if isinstance(outcome, Answer) else None
    return delay if asked is None else asked + draw(0, policy.first_delay_sec)
