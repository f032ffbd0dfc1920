"""What sandboxes need of an engine. Every method raises UnavailableError when it is away."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.notifications.model import Notice
from sandyard.platform.sandboxes.model import End, NewSandbox, Quota, Sandbox, Status


@dataclass(frozen=True, slots=True)
class SandboxQuery:
    """Which of an account's sandboxes are listed, and in which order."""

    status: Status | None = None
    project_id: str | None = None
    template_id: str | None = None
    search: str | None = None
    sort: str = "-created_at"


@dataclass(frozen=True, slots=True)
class Usable:
    """What a sandbox is made of, if its owner may use it."""

    repository_url: str | None
    """None if there is no such template for this account."""
    min_cpu: float = 0
    min_memory_gb: float = 0
    project_id: str | None = None
    """None if there is no such project; the default one if none was named."""
    project_is_archived: bool = False


class SandboxStore(Protocol):
    """Sandboxes and their usage. A sandbox has an open usage exactly while it is running: both
    are changed by one transaction, on condition that the attempt is still the one it was."""

    async def find_usable(
        self, account_id: str, *, template_id: str, project_id: str | None
    ) -> Usable:
        """The template, if it is official, public or the account's own, and the project."""
        ...

    async def add(
        self, new: NewSandbox, *, sandbox_id: str, account_id: str, now: datetime
    ) -> Sandbox:
        """The sandbox, `created`. Raises SandboxNameTakenError."""
        ...

    async def find(
        self, sandbox_id: str, *, account_id: str | None, now: datetime
    ) -> Sandbox | None:
        """The sandbox, if it is this account's; any account's with None."""
        ...

    async def page(
        self, account_id: str, query: SandboxQuery, *, limit: int, cursor: str | None, now: datetime
    ) -> Page[Sandbox]: ...

    async def change(self, before: Sandbox, after: Sandbox, *, now: datetime) -> bool:
        """Set name, description and resources, if status and attempt are still as before.
        Raises SandboxNameTakenError."""
        ...

    async def begin(
        self, sandbox: Sandbox, *, attempt: int, node: str, quota: Quota, now: datetime
    ) -> bool:
        """Make it `starting`, if it is still as it was and the account's active sandboxes leave
        room for it; no two callers together exceed the quota. Raises QuotaExceededError."""
        ...

    async def record_running(
        self,
        sandbox_id: str,
        *,
        attempt: int,
        usage_id: str,
        url: str,
        hourly_rate: Decimal,
        started_at: datetime,
        timeout_at: datetime,
    ) -> bool:
        """`starting → running` and its usage opens; False if this attempt is not starting."""
        ...

    async def record_end(
        self,
        sandbox_id: str,
        *,
        attempt: int,
        end: End,
        usage_id: str,
        storage_rate: Decimal,
        notice: Notice | None,
    ) -> bool:
        """`starting` or `running` → the end's status; its usage closes. An older snapshot is
        replaced, and what keeping it cost becomes the usage `usage_id`. False if this attempt
        has ended already. The notice, if there is one, reaches the owner if and only if
        the end is recorded."""
        ...

    async def recycle(
        self, sandbox: Sandbox, *, now: datetime, usage_id: str, storage_rate: Decimal
    ) -> bool:
        """→ `recycled`, if it is still as it was and not active; its snapshot is given up."""
        ...

    async def drop_snapshot(
        self, sandbox: Sandbox, *, now: datetime, usage_id: str, storage_rate: Decimal
    ) -> bool:
        """Forget the snapshot, if it is still the one; what keeping it cost becomes a usage."""
        ...

    async def active_on(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        """Those that are starting or running there."""
        ...

    async def active_of_deactivated(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        """Those of them whose account is deactivated."""
        ...

    async def with_snapshot_until(
        self, moment: datetime, *, limit: int, after: str, now: datetime
    ) -> Sequence[Sandbox]:
        """Those whose snapshot expires by this moment, in order of their ids."""
        ...

    async def warn_of_expiry(self, sandbox: Sandbox, notice: Notice, *, now: datetime) -> bool:
        """Tell the owner of this snapshot's end, once."""
        ...

    async def claimed_snapshots(self, snapshot_ids: Sequence[str]) -> set[str]:
        """Those of the snapshots that some sandbox has."""
        ...
