"""The job that turns usage into bills. Running it again changes nothing."""

from dataclasses import dataclass
from datetime import UTC, datetime

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import IdMaker
from sandyard.platform.billing.model import bill_for, spend_notice
from sandyard.platform.billing.ports import BillingStore
from sandyard.platform.usage.model import PriceList, billable_until, midnight, shares_by_day

_PORTION = 200


@dataclass(slots=True)
class BillingReport:
    storage_counted: int = 0
    usages: int = 0
    bills: int = 0
    spenders_told: int = 0


class MakeBills:
    def __init__(
        self,
        store: BillingStore,
        *,
        clock: Clock,
        prices: PriceList,
        make_billing_id: IdMaker,
        make_usage_id: IdMaker,
    ) -> None:
        self._store = store
        self._clock = clock
        self._prices = prices
        self._make_billing_id = make_billing_id
        self._make_usage_id = make_usage_id

    async def run(self) -> BillingReport:
        """Bill every usage up to its end, or, while it goes on, up to the last midnight."""
        report = BillingReport()
        now = utc_time(self._clock.now())
        while counted := await self._store.count_storage(
            until=midnight(now.date()),
            prices=self._prices,
            make_usage_id=self._make_usage_id,
            limit=_PORTION,
        ):
            report.storage_counted += counted
        after = 0
        while page := await self._store.unbilled(after=after, limit=_PORTION):
            after = page[-1][0]
            bills = [
                bill_for(usage, share, billing_id=self._make_billing_id(), now=now)
                for _, usage in page
                for share in shares_by_day(usage, until=billable_until(usage, now=now))
                if share.amount  # what came to less than a millionth is not billed
            ]
            done = [usage.usage_id for _, usage in page if usage.end_time is not None]
            report.bills += await self._store.add_bills(bills, done=done)
            report.usages += len(page)
        await self._tell_spenders(now, report)
        return report

    async def _tell_spenders(self, now: datetime, report: BillingReport) -> None:
        month = datetime(now.year, now.month, 1, tzinfo=UTC)
        for spender in await self._store.spenders(since=month, now=now):
            notice = spend_notice(spender.spent, spender.threshold)
            report.spenders_told += await self._store.tell_spender(spender, notice, now=now)
