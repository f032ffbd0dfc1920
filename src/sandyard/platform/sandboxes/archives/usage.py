"""Records the storage of templates' archives, and of other things, as usage of their owners."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from sandyard.kit.changes.transitions import Cause, E, Entity, Transition
from sandyard.kit.ids import IdMaker
from sandyard.kit.wired import wired
from sandyard.platform.entities.apply import BusyError, apply_all
from sandyard.platform.sandboxes.archives.model import Transitions
from sandyard.platform.usage.model import PriceList

Stored = TypeVar("Stored", bound=Entity, covariant=True)
_BATCH = 200


class StoredThings(Protocol[Stored]):
    async def find_any(self, subject: str, /) -> Stored | None:
        """One of any account, even a deleted one."""

    async def uncounted(self, until: datetime, *, limit: int, after: str) -> Sequence[Stored]:
        """Those whose storage is counted only up to before then, by id."""

    async def apply(self, *transitions: Transition[Any]) -> bool: ...


@wired
class StorageUsage(Generic[E]):
    store: StoredThings[E]
    decide: Callable[..., Transitions | None]
    """The model's, such as `count_archives`."""
    prices: PriceList
    make_usage_id: IdMaker

    async def count_all(self, until: datetime, *, cause: Cause) -> int:
        """Returns how many had something to count."""
        counted, after = 0, ""
        while page := await self.store.uncounted(until, limit=_BATCH, after=after):
            after = getattr(page[-1], page[-1].SUBJECT)
            for each in page:
                subject = getattr(each, each.SUBJECT)
                counted += await self.count(subject, until=until, cause=cause)
        return counted

    async def count(self, subject: str, *, until: datetime, cause: Cause) -> bool:
        """What is being changed is left to the next run."""

        async def decide() -> Transitions:
            found = await self.store.find_any(subject)
            counted = found and self.decide(
                found,
                until=until,
                usage_id=self.make_usage_id(),
                prices=self.prices,
                cause=cause,
            )
            return counted or ()

        with suppress(BusyError):
            return bool(await apply_all(self.store, decide))
        return False
