"""The total of an account's month, before it is billed, and charges for what is no usage."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import ConflictError, NotFoundError
from sandyard.kit.ids import repeated_id, resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.billing import model
from sandyard.platform.billing.model import Bill, Charge, MonthToDate, Sum, SumBy
from sandyard.platform.billing.ports import BillingStore, BillQuery
from sandyard.platform.sandboxes.runs.model import uncounted_storage
from sandyard.platform.usage.model import Consumption, PriceList, Usage, midnight


class ChargeExistsError(ConflictError):
    """Another charge was made with this `Idempotency-Key`. Send a new key, or the same body as
    before."""


class ChargedAccountUnknownError(NotFoundError):
    """There is no account with this id, so nothing was charged. List the users to find it."""


class Charges:
    def __init__(self, store: BillingStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def charge(
        self, account_id: str, new: Charge, *, key: str | None, by: Principal
    ) -> tuple[Bill, bool]:
        """The bill, and whether it is new: the same key makes one bill of an account."""
        made = model.charge(
            account_id,
            new,
            billing_id=repeated_id("bil", account_id, key) if key else resource_id("bil"),
            cause=Cause.by(by.actor, self._clock),
        )
        if await self._store.apply(made):
            return made.result, True
        found = await self._store.find_bill(made.result.billing_id)
        if found is None:
            raise ChargedAccountUnknownError
        if not model.is_repeat(found, made.result):
            raise ChargeExistsError
        return found, False


class Statements:
    def __init__(self, store: BillingStore, *, clock: Clock, prices: PriceList) -> None:
        self._store = store
        self._clock = clock
        self._prices = prices

    async def month_to_date(
        self, account_id: str, *, by: SumBy, sandbox_id: str | None = None
    ) -> MonthToDate:
        """The UTC month up to now: billed, ended and running usage, storage and charges; of one
        sandbox if given."""
        now = utc_time(self._clock.now())
        since = now.date().replace(day=1)
        found = await self._store.usages_between(
            account_id, midnight(since), now, by=by, sandbox_id=sandbox_id
        )
        others = [*found.others, *await self._stored(account_id, now, sandbox_id)]
        bills = BillQuery(sandbox_id=sandbox_id, from_day=since, to_day=now.date())
        charges = await self._store.sums(account_id, replace(bills, is_charge=True), by=by)
        sums = {each.key: each.consumed for each in charges}
        for each in found.sums:
            sums[each.key] = sums.get(each.key, Consumption()) + each.consumed
        for key, consumed in model.sum_usages(others, since=since, until=now, by=by).items():
            sums[key] = sums.get(key, Consumption()) + consumed
        billed = await self._store.sums(account_id, bills, by="service_type")
        return MonthToDate(
            since=since,
            until=now,
            sums=[Sum(key, sums[key]) for key in sorted(sums)],
            billed=sum((each.consumed.amount for each in billed), Decimal(0)),
        )

    async def _stored(self, account_id: str, now: datetime, sandbox_id: str | None) -> list[Usage]:
        """The storage of snapshots that is on no usage yet."""
        found = [
            uncounted_storage(each, until=now, usage_id="", prices=self._prices)
            for each in await self._store.with_snapshot(account_id)
            if sandbox_id in (None, each.sandbox_id)
        ]
        return [usage for usage in found if usage is not None]
