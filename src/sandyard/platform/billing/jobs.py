"""The job that turns usage into bills. Running it again changes nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from functools import partial
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, ConflictRetries
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import for_each
from sandyard.kit.ids import resource_id
from sandyard.platform.billing.model import Bill, bill_usage, warn_of_spending
from sandyard.platform.billing.ports import BillingStore
from sandyard.platform.sandboxes.archives.usage import StorageUsage
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.node import SandboxIds
from sandyard.platform.sandboxes.ports import SandboxStore
from sandyard.platform.sandboxes.runs.model import Accounting, count_storage
from sandyard.platform.usage.model import PriceList, Usage, midnight

ACTOR = actor("job", "billing")

_BATCH = 200
_AT_ONCE = 4
_new_id = partial(resource_id, "bil")


@dataclass(slots=True)
class BillingReport:
    storage_counted: int = 0
    usages: int = 0
    bills: int = 0
    spenders_notified: int = 0


@dataclass(slots=True, eq=False)
class MakeBills:
    """Usages under concurrent changes are left to the next run."""

    store: BillingStore
    sandboxes: SandboxStore
    _: KW_ONLY
    clock: Clock
    prices: PriceList
    ids: SandboxIds
    stored: Sequence[StorageUsage[Any]]
    """Those that count what is stored without a sandbox."""

    async def run(self) -> BillingReport:
        """Bill every usage up to its end, or, while it is open, up to the last midnight."""
        report = BillingReport(storage_counted=await self._count_storage())
        after = 0
        while page := await self.store.unbilled(after=after, limit=_BATCH):
            after = page[-1][0]
            report.bills += await self._bill_all([usage for _, usage in page])
            report.usages += len(page)
        report.spenders_notified = await self._warn_spenders()
        return report

    async def _count_storage(self) -> int:
        until = midnight(self._cause().at.date())
        counted, after = 0, ""
        while page := await self.sandboxes.with_uncounted_storage(until, limit=_BATCH, after=after):
            after = page[-1].sandbox_id
            count = partial(self._count_one, until=until, cause=self._cause())
            counted += sum(await for_each(page, count, slots=asyncio.Semaphore(_AT_ONCE)))
        for each in self.stored:
            counted += await each.count_all(until, cause=self._cause())
        return counted

    async def _count_one(self, sandbox: Sandbox, *, until: datetime, cause: Cause) -> bool:
        found: Sandbox | None = sandbox
        async for _ in ConflictRetries():
            accounting = Accounting(self.ids.new(), self.prices, cause)
            transitions = found and count_storage(found, until=until, accounting=accounting)
            if not transitions:
                return False
            if await self.sandboxes.apply(*transitions):
                return True
            found = await self.sandboxes.find(sandbox.sandbox_id)
        return False

    async def _bill_all(self, usages: Sequence[Usage]) -> int:
        cause = self._cause()
        bills = await self.store.bills_of([usage.usage_id for usage in usages])
        made = await for_each(
            usages,
            lambda usage: self._bill(usage, bills.get(usage.usage_id, ()), cause),
            slots=asyncio.Semaphore(_AT_ONCE),
        )
        return sum(made)

    async def _bill(self, usage: Usage, bills: Sequence[Bill], cause: Cause) -> int:
        """Returns the number of new bills."""
        async for _ in ConflictRetries():
            transitions = bill_usage(usage, bills, new_id=_new_id, cause=cause)
            if not transitions or await self.store.apply(*transitions):
                return sum(each.before is None for each in transitions)
            usage = await self.store.find_usage(usage.usage_id) or usage
            bills = (await self.store.bills_of([usage.usage_id])).get(usage.usage_id, ())
        return 0

    async def _warn_spenders(self) -> int:
        cause, warned = self._cause(), 0
        for spending in await self.store.spendings(cause.at.date().replace(day=1)):
            warning = warn_of_spending(
                spending,
                currency=self.prices.currency,
                notification_id=self.ids.notification(),
                cause=cause,
            )
            warned += warning is not None and await self.store.apply(warning)
        return warned

    def _cause(self) -> Cause:
        """One for each batch: a run may take long."""
        return Cause.by(ACTOR, self.clock)
