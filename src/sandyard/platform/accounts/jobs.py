"""The job that removes sign-ups which nobody verified."""

from dataclasses import dataclass

from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.accounts.ports import SignupStore


@dataclass(frozen=True, slots=True)
class SignupReport:
    signups_removed: int


class RemoveExpiredSignups:
    def __init__(self, signups: SignupStore, *, clock: Clock) -> None:
        self._signups = signups
        self._clock = clock

    async def run(self) -> SignupReport:
        now = utc_time(self._clock.now())
        return SignupReport(await self._signups.remove_expired_signups(now=now))
