"""The store of sandboxes. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.model import Listing
from sandyard.platform.quotas.model import QuotaCheck, QuotaRequest
from sandyard.platform.sandboxes.model import (
    ProjectState,
    Sandbox,
    SandboxFilter,
    Status,
)
from sandyard.platform.sandboxes.runs.end_model import ActiveRun
from sandyard.platform.sandboxes.secrets_model import Binding
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import Usage
from sandyard.runtime.secrets_model import MachineSecrets

Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class ActiveCounts:
    by_status: Mapping[Status, int]
    silent: int


class TemplateFinder(Protocol):
    async def find(self, account_id: str, template_id: str, /) -> Template | None:
        """The template, if the account may see it."""


class WarmTemplates(Protocol):
    async def warm_templates(self) -> Sequence[Template]:
        """Templates that have warm machines."""


class SandboxVariables(Protocol):
    async def of_sandbox(self, sandbox: Sandbox) -> Mapping[str, str]:
        """The variables of its project and of itself, by name."""


class StartVariables(SandboxVariables, Protocol):
    async def secrets_of(self, sandbox: Sandbox, *, run: str) -> MachineSecrets:
        """Those that are bound to hosts."""


class RunningSecrets(Protocol):
    async def run(self) -> None:
        """Bring the secrets of this node's running sandboxes up to date, and record their use."""


class WritableVariables(StartVariables, Protocol):
    async def set(
        self,
        holder_id: str,
        name: str,
        value: str,
        *,
        is_secret: bool,
        by: Principal,
        binding: Binding | None = None,
    ) -> Any:
        """Programs of this sandbox or project that start from now on get it."""


class SandboxStore(Protocol):
    """Sandboxes, and the facts of decisions about them."""

    async def apply(self, *transitions: Transition[Any]) -> bool:
        """Apply all of them with their events; or nothing and return False, if something has
        changed since it was read. Raises SandboxNameTakenError."""

    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None:
        """The sandbox, if it is this account's; any account's with None."""

    async def find_of_active(self, sandbox_id: str) -> Sandbox | None:
        """The sandbox, of any account that is active."""

    async def find_with_usage(self, sandbox_id: str) -> tuple[Sandbox, Usage | None] | None:
        """The sandbox and its open usage, if it has one."""

    async def page(self, account_id: str, listing: Listing[SandboxFilter]) -> Page[Sandbox]: ...

    async def costs(self, sandbox_ids: Sequence[str], *, now: datetime) -> Mapping[str, Decimal]:
        """The cost of each up to now; none for one that never ran."""

    async def find_project(self, account_id: str, project_id: str | None) -> ProjectState | None:
        """The account's project; its default one if none is named."""

    async def read_fact(self, about: Fact, /) -> Fact: ...

    async def check_quota(self, request: QuotaRequest) -> QuotaCheck: ...

    async def active_on(self, node: str) -> Sequence[Sandbox]:
        """Sandboxes that are starting or running there."""

    async def active_runs(self, node: str) -> Sequence[ActiveRun]:
        """The same, at a fraction of the cost."""

    async def active_of(self, node: str, sandbox_ids: Sequence[str]) -> Sequence[Sandbox]:
        """Those of these that are starting or running there."""

    async def active_elsewhere(self, node: str, *, unseen_since: datetime) -> Sequence[Sandbox]:
        """Sandboxes starting or running on another node, without a heartbeat since then."""

    async def count_active(self, *, unseen_since: datetime) -> ActiveCounts:
        """How many sandboxes are starting or running, and how many of those had no heartbeat since
        then."""

    async def note_seen(self, sandbox_ids: Sequence[str], *, at: datetime) -> None:
        """Record their node's heartbeat, for the other nodes; a later one stays."""

    async def note_used(self, sandbox_id: str, *, at: datetime) -> None:
        """Record that it is used now, if it is active."""

    async def active_of_deactivated(self, node: str) -> Sequence[Sandbox]:
        """The node's active sandboxes whose account is deactivated."""

    async def to_recycle(self, node: str, *, now: datetime) -> Sequence[Sandbox]:
        """Sandboxes of the node or of none whose time is over, and that are recycled then."""

    async def with_snapshot_until(
        self, moment: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        """Sandboxes whose snapshot expires by this time, ordered by id, after this one."""

    async def with_uncounted_storage(
        self, until: datetime, *, limit: int, after: str
    ) -> Sequence[Sandbox]:
        """Sandboxes whose snapshot's storage up to then is not on usages yet, likewise."""

    async def referenced_snapshots(self, snapshot_ids: Sequence[str]) -> set[str]:
        """The snapshots that a sandbox has."""

    async def referenced_archives(self, archive_ids: Sequence[str]) -> set[str]:
        """The archives that a template has, or a sandbox that has not run yet."""
