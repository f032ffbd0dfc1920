"""Records the storage of templates' archives as usage of their owners."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.ids import IdMaker
from sandyard.platform.entities.apply import BusyError, apply_all
from sandyard.platform.sandboxes.archives.model import Transitions, count_archives
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import PriceList

_BATCH = 200


class ArchiveStore(Protocol):
    async def find_any(self, template_id: str) -> Template | None:
        """A template of any account, even a deleted one."""

    async def uncounted(self, until: datetime, *, limit: int, after: str) -> Sequence[Template]:
        """Templates whose archives are counted only up to before then, by id."""

    async def apply(self, *transitions: Transition[Any]) -> bool: ...


class ArchiveUsage:
    def __init__(self, store: ArchiveStore, *, prices: PriceList, make_usage_id: IdMaker) -> None:
        self._store = store
        self._prices = prices
        self._make_usage_id = make_usage_id

    async def count_all(self, until: datetime, *, cause: Cause) -> int:
        """Returns how many templates had something to count."""
        counted, after = 0, ""
        while page := await self._store.uncounted(until, limit=_BATCH, after=after):
            after = page[-1].template_id
            for template in page:
                counted += await self.count(template.template_id, until=until, cause=cause)
        return counted

    async def count(self, template_id: str, *, until: datetime, cause: Cause) -> bool:
        """Templates under concurrent changes are left to the next run."""

        async def decide() -> Transitions:
            found = await self._store.find_any(template_id)
            counted = found and count_archives(
                found,
                until=until,
                usage_id=self._make_usage_id(),
                prices=self._prices,
                cause=cause,
            )
            return counted or ()

        with suppress(BusyError):
            return bool(await apply_all(self._store, decide))
        return False
