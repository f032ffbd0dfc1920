"""The store of bills. Every method raises UnavailableError if it is unavailable."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.platform.billing.model import Bill, Spending, Sum, SumBy
from sandyard.platform.entities.model import Listing
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.usage.model import Usage


@dataclass(frozen=True, slots=True)
class BillQuery:
    """Both days are inclusive."""

    project_id: str | None = None
    sandbox_id: str | None = None
    service_type: str | None = None
    from_day: date | None = None
    to_day: date | None = None
    is_charge: bool | None = None
    """Of no usage."""


@dataclass(frozen=True, slots=True)
class UsagesBetween:
    """Usages of a period: those that lie in it and within one UTC day are summed."""

    sums: Sequence[Sum]
    others: Sequence[Usage]


class BillingStore(Protocol):
    async def apply(self, *transitions: Transition[Any]) -> bool:
        """Apply all of them with their events; or nothing and return False, if something has
        changed since it was read, a day to be billed already has a bill, or there is no such
        account."""

    async def unbilled(self, *, after: int, limit: int) -> Sequence[tuple[int, Usage]]:
        """Usages not billed to their end, ordered by number, after this one."""

    async def find_usage(self, usage_id: str) -> Usage | None: ...

    async def find_bill(self, billing_id: str) -> Bill | None: ...

    async def bills_of(self, usage_ids: Sequence[str]) -> Mapping[str, Sequence[Bill]]:
        """The bills of each usage."""

    async def spendings(self, month: date) -> Sequence[Spending]:
        """For the accounts with a threshold that were not warned since this day, the first of the
        month."""

    async def usages_between(
        self,
        account_id: str,
        since: datetime,
        until: datetime,
        *,
        by: SumBy,
        sandbox_id: str | None,
    ) -> UsagesBetween:
        """The account's usages in this period, each once; of one sandbox only if it is given."""

    async def with_snapshot(self, account_id: str) -> Sequence[Sandbox]:
        """The account's sandboxes that have a snapshot."""

    async def page(self, account_id: str, listing: Listing[BillQuery]) -> Page[Bill]: ...

    async def sums(self, account_id: str, query: BillQuery, *, by: SumBy) -> Sequence[Sum]: ...

    def bills(self, account_id: str, query: BillQuery) -> AsyncIterator[Sequence[Bill]]:
        """All bills, the earliest day first, in batches of bounded size."""
