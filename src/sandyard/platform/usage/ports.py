"""What the usage listings need of an engine."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.entities.model import Listing
from sandyard.platform.usage.model import Usage


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """Usages that started from `start` on and before `end`."""

    sandbox_id: str | None = None
    project_id: str | None = None
    service_type: str | None = None
    is_open: bool | None = None
    start: datetime | None = None
    end: datetime | None = None


class UsageStore(Protocol):
    async def page(self, account_id: str, listing: Listing[UsageQuery]) -> Page[Usage]: ...
