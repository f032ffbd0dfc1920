"""What billing needs of an engine. Every method raises UnavailableError when it is away."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Literal, Protocol

from sandyard.kit.ids import IdMaker
from sandyard.kit.paging import Page
from sandyard.platform.billing.model import Bill, Sum
from sandyard.platform.notifications.model import Notice
from sandyard.platform.usage.model import PriceList, Usage

SumBy = Literal["day", "project", "sandbox", "service_type"]


@dataclass(frozen=True, slots=True)
class BillQuery:
    """Days are both included."""

    project_id: str | None = None
    sandbox_id: str | None = None
    service_type: str | None = None
    from_day: date | None = None
    to_day: date | None = None


@dataclass(frozen=True, slots=True)
class Spender:
    account_id: str
    threshold: Decimal
    spent: Decimal


class BillingStore(Protocol):
    async def count_storage(
        self, *, until: datetime, prices: PriceList, make_usage_id: IdMaker, limit: int
    ) -> int:
        """Turn what keeping snapshots came to until then into closed usages, of up to so many
        sandboxes; how many there were."""
        ...

    async def unbilled(self, *, after: int, limit: int) -> Sequence[tuple[int, Usage]]:
        """Usages that are not billed to their end, in order of their numbers, after this one."""
        ...

    async def add_bills(self, bills: Sequence[Bill], *, done: Sequence[str]) -> int:
        """Add those whose usage, day and service have none yet, and note which usages are billed
        to their end, together; how many were added."""
        ...

    async def page(
        self, account_id: str, query: BillQuery, *, limit: int, cursor: str | None
    ) -> Page[Bill]:
        """The latest day first."""
        ...

    async def sums(self, account_id: str, query: BillQuery, *, by: SumBy) -> Sequence[Sum]: ...

    def bills(self, account_id: str, query: BillQuery) -> AsyncIterator[Sequence[Bill]]:
        """All of them, the earliest day first, in portions of bounded size."""
        ...

    async def spenders(self, *, since: datetime, now: datetime) -> Sequence[Spender]:
        """Accounts that have reached their threshold since then and have not been told."""
        ...

    async def tell_spender(self, spender: Spender, notice: Notice, *, now: datetime) -> bool:
        """Tell the account once."""
        ...
