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


async def remove_expired_signups(signups: SignupStore, *, clock: Clock) -> SignupReport:
    report, stale = SignupReport(), 0
    while stale < ATTEMPTS:
        cause = Cause.by(actor("job", "signups"), clock)
        expired = await signups.find_expired(now=cause.at, limit=_BATCH)
        decided = [each for each in (expire_signup(one, cause) for one in expired) if each]
        if not await signups.apply(*decided):
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


async def prune_login_attempts(
    attempts: LoginAttempts, records: RecordStore, *, clock: Clock
) -> LoginReport:
    """Records of calls with an idempotency key too: both are read by their own time only."""
    now = clock.now()
    removed = await attempts.prune(now=utc_time(now))
    return LoginReport(removed, await records.prune(now=now))
