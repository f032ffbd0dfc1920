"""The store of sandboxes. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol

from sandyard.kit.paging import Page
from sandyard.kit.transitions import Transition
from sandyard.platform.count_quotas import CountQuota
from sandyard.platform.sandboxes.model import (
    ProjectState,
    QuotaCheck,
    QuotaRequest,
    Sandbox,
    Status,
)
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import Usage


@dataclass(frozen=True, slots=True)
class SandboxQuery:
    """Which of an account's sandboxes are listed, and in which order."""

    status: Status | None = None
    project_id: str | None = None
    template_id: str | None = None
    search: str | None = None
    sort: str = "-created_at"
    is_kept: bool = False
    """Without those that were recycled."""


@dataclass(frozen=True, slots=True)
class ActiveCounts:
    by_status: Mapping[Status, int]
    silent: int


class TemplateFinder(Protocol):
    async def find_template(self, account_id: str, template_id: str) -> Template | None:
        """The template, if the account may see it."""
        ...


class WarmTemplates(Protocol):
    async def warm_templates(self) -> Sequence[Template]:
        """Those of which machines are kept warm."""
        ...


class SandboxVariables(Protocol):
    async def of_sandbox(self, sandbox: Sandbox) -> Mapping[str, str]:
        """What its project and the sandbox itself set for programs and commands, by name."""
        ...


class SandboxStore(Protocol):
    """Sandboxes, and what is decided with them."""

    async def apply(self, *transitions: Transition[Any]) -> bool:
        """All of them with their events, or nothing and False if something is not any more what
        they were decided from. Raises SandboxNameTakenError."""
        ...

    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None:
        """The sandbox, if it is this account's; any account's with None."""
        ...

    async def find_with_usage(self, sandbox_id: str) -> tuple[Sandbox, Usage | None] | None:
        """The sandbox and its open usage, if it has one."""
        ...

    async def page(
        self, account_id: str, query: SandboxQuery, *, limit: int, cursor: str | None
    ) -> Page[Sandbox]: ...

    async def costs(self, sandbox_ids: Sequence[str], *, now: datetime) -> Mapping[str, Decimal]:
        """What each has cost up to now; nothing for one that never ran."""
        ...

    async def find_project(self, account_id: str, project_id: str | None) -> ProjectState | None:
        """The account's project; its default one if none is named."""
        ...

    async def read_count_quota(self, about: CountQuota) -> CountQuota: ...

    async def check_quota(self, request: QuotaRequest) -> QuotaCheck: ...

    async def active_on(self, node: str) -> Sequence[Sandbox]:
        """Those that are starting or running there."""
        ...

    async def active_elsewhere(self, node: str, *, unseen_since: datetime) -> Sequence[Sandbox]:
        """Those that are starting or running on another node, without a sign of life since."""
        ...

    async def count_active(self, *, unseen_since: datetime) -> ActiveCounts:
        """How many sandboxes are starting or running, and how many of those have been silent since
        then."""
        ...

    async def note_seen(self, sandbox_ids: Sequence[str], *, at: datetime) -> None:
        """Record their node's heartbeat, for the other nodes."""
        ...

    async def note_used(self, sandbox_id: str, *, at: datetime) -> None:
        """Record that it is used now, if it is active."""
        ...

    async def active_of_deactivated(self, node: str) -> Sequence[Sandbox]:
        """Those of them whose account is deactivated."""
        ...

    async def to_recycle(self, node: str) -> Sequence[Sandbox]:
        """Those of the node whose time is over and that are not kept then."""
        ...

    async def with_snapshot_until(
        self, moment: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        """Those whose snapshot expires by this moment, in order of their ids, after this one."""
        ...

    async def with_uncounted_storage(
        self, until: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        """Those whose snapshot was kept until then and is not on usages up to then, likewise."""
        ...

    async def referenced_snapshots(self, snapshot_ids: Sequence[str]) -> set[str]:
        """Those of the snapshots that some sandbox has."""
        ...

    async def referenced_archives(self, archive_ids: Sequence[str]) -> set[str]:
        """Those of the archives that a template has, or a sandbox that has not run yet."""
        ...
