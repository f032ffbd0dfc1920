"""Refuses logins after too many failures, before hashing any password."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.http.client_address import network_of
from sandyard.platform.accounts.logins import model
from sandyard.platform.accounts.ports import LoginAttempts

_NOBODY = ""
"""Looked up in place of a missing account, so that the time is the same."""


@dataclass(frozen=True, slots=True)
class Admission:
    """An admitted attempt, and the counters that count it until it succeeds."""

    attempt: model.LoginAttempt
    counters: AbstractSet[model.Counter]


class LoginLimiter:
    def __init__(self, attempts: LoginAttempts, limits: model.LoginLimits, *, clock: Clock) -> None:
        self._attempts = attempts
        self._limits = limits
        self._clock = clock

    async def admit(self, login: str, *, account_id: str | None, address: str) -> Admission:
        """Count the attempt as failed, so that concurrent ones can't pass; RateLimitedError."""
        now = utc_time(self._clock.now())
        attempt = model.LoginAttempt(login, network_of(address))
        is_known = await self._attempts.is_known(account_id or _NOBODY, attempt.network, now=now)
        counted = await self._attempts.change(
            attempt,
            lambda counts: model.admit_attempt(counts, self._limits, is_known=is_known, now=now),
        )
        return Admission(attempt, counted.keys())

    async def forgive(self, admission: Admission) -> None:
        await self._attempts.change(
            admission.attempt, lambda counts: model.forgive_attempt(counts, admission.counters)
        )

    async def remember(self, account_id: str, *, address: str) -> None:
        """Record that the owner uses this address: he knew the password, or read the mail."""
        now = utc_time(self._clock.now())
        await self._attempts.remember(account_id, network_of(address), now=now)
