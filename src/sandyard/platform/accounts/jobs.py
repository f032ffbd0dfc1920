"""Jobs that remove unverified sign-ups and expired counts of logins."""

from dataclasses import dataclass

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import ATTEMPTS, Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.idempotency import RecordStore
from sandyard.platform.accounts.ports import LoginAttempts, SignupStore
from sandyard.platform.accounts.signups.model import expire_signup
from sandyard.platform.entities.apply import BusyError

_BATCH = 500


@dataclass(slots=True)
class SignupReport:
    signups_removed: int = 0


class RemoveExpiredSignups:
    def __init__(self, signups: SignupStore, *, clock: Clock) -> None:
        self._signups = signups
        self._clock = clock

    async def run(self) -> SignupReport:
        report, stale = SignupReport(), 0
        while stale < ATTEMPTS:
            cause = Cause.by(actor("job", "signups"), self._clock)
            expired = await self._signups.find_expired(now=cause.at, limit=_BATCH)
            decided = [each for each in (expire_signup(one, cause) for one in expired) if each]
            if not await self._signups.apply(*decided):
                stale += 1
                continue
            report.signups_removed += len(decided)
            if len(expired) < _BATCH:
                return report
        raise BusyError


@dataclass(slots=True)
class LoginReport:
    rows_removed: int = 0
    idempotency_records_removed: int = 0


class PruneLoginAttempts:
    """Records of calls with an idempotency key too: both are read by their own time only."""

    def __init__(self, attempts: LoginAttempts, records: RecordStore, *, clock: Clock) -> None:
        self._attempts = attempts
        self._records = records
        self._clock = clock

    async def run(self) -> LoginReport:
        now = self._clock.now()
        removed = await self._attempts.prune(now=utc_time(now))
        return LoginReport(removed, await self._records.prune(now=now))
