"""What an account's month came to, before it is billed."""

from collections.abc import Iterable
from decimal import Decimal

from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.billing.model import MonthToDate, Sum, SumBy, sum_usages
from sandyard.platform.billing.ports import BillingStore, BillQuery
from sandyard.platform.sandboxes.run_model import uncounted_storage
from sandyard.platform.usage.model import Consumption, PriceList, Usage, midnight


class Statements:
    def __init__(self, store: BillingStore, *, clock: Clock, prices: PriceList) -> None:
        self._store = store
        self._clock = clock
        self._prices = prices

    async def month_to_date(self, account_id: str, *, by: SumBy) -> MonthToDate:
        """The UTC month up to now: what was billed, what has ended, what runs and what is kept."""
        now = utc_time(self._clock.now())
        since = now.date().replace(day=1)
        sums: dict[str, Consumption] = {}

        def count(usages: Iterable[Usage]) -> None:
            for key, consumed in sum_usages(usages, since=since, until=now, by=by).items():
                sums[key] = sums.get(key, Consumption()) + consumed

        async for usages in self._store.usages_since(account_id, midnight(since)):
            count(usages)
        kept = [
            uncounted_storage(each, until=now, usage_id="", prices=self._prices)
            for each in await self._store.with_snapshot(account_id)
        ]
        count(usage for usage in kept if usage is not None)
        bills = BillQuery(from_day=since, to_day=now.date())
        billed = await self._store.sums(account_id, bills, by="service_type")
        return MonthToDate(
            since=since,
            until=now,
            sums=[Sum(key, sums[key]) for key in sorted(sums)],
            billed=sum((each.consumed.amount for each in billed), Decimal(0)),
        )
