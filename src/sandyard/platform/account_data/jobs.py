"""The job that removes the data of deleted accounts."""

import logging
from dataclasses import dataclass

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.errors import SandyardError
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.account_data.model import remove_with_account
from sandyard.platform.account_data.ports import AccountDataStore, Recycling

logger = logging.getLogger(__name__)

_ACCOUNTS = 100
_TOGETHER = 50
_ATTEMPTS = 1000


@dataclass(slots=True)
class ErasureReport:
    accounts: int = 0
    sandboxes: int = 0
    things: int = 0
    failed: int = 0
    """Accounts that could not be removed completely; the next run tries again."""


class EraseDeletedAccounts:
    """Recycles sandboxes with their files and snapshots, and removes keys, templates, images,
    volumes, variables, notifications and projects with their files. Usage and bills stay."""

    def __init__(self, store: AccountDataStore, sandboxes: Recycling, *, clock: Clock) -> None:
        self._store = store
        self._sandboxes = sandboxes
        self._clock = clock

    async def run(self) -> ErasureReport:
        report = ErasureReport()
        for account_id in await self._store.uncleared(limit=_ACCOUNTS):
            try:
                await self._erase(Principal(account_id, Role.USER), report)
            except SandyardError as error:
                report.failed += 1
                logger.warning(
                    "a deleted account could not be removed yet: %s",
                    error.message,
                    extra={"action": "deleted-accounts", "account_id": account_id},
                )
            else:
                report.accounts += 1
        return report

    async def _erase(self, owner: Principal, report: ErasureReport) -> None:
        for sandbox_id in await self._store.sandboxes_left(owner.account_id):
            await self._sandboxes.recycle(sandbox_id, by=owner)
            report.sandboxes += 1
        for _ in range(_ATTEMPTS):
            left = await self._store.entities_left(owner.account_id, limit=_TOGETHER)
            if not left:
                await self._store.clear([owner.account_id])
                return
            cause = Cause.by(actor("job", "deleted-accounts"), self._clock)
            reason = cause.because("its account was deleted")
            if await self._store.apply(
                *(remove_with_account(each, owner, reason) for each in left)
            ):
                report.things += len(left)
