"""The lifecycle of a sandbox: its states and transitions, without any I/O.

`created → starting → running → stopped | timeout → starting …`; `starting → stopped` when it fails;
anything → `recycled`, which is the end. A sandbox has an open usage exactly while it is running;
the start and end of runs are decided in `runs/model.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar

from sandyard.kit.changes.transitions import DATA, Cause, Transition, changed, created
from sandyard.kit.node import require_here
from sandyard.platform.quotas.model import CountQuota, QuotaCheck
from sandyard.platform.sandboxes import errors
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import Consumer
from sandyard.runtime.guest.program import ProgramPolicy
from sandyard.runtime.model import IsolationMode
from sandyard.runtime.network_model import Network


class Status(StrEnum):
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    TIMEOUT = "timeout"
    RECYCLED = "recycled"


ACTIVE = frozenset({Status.STARTING, Status.RUNNING})
_NO_RESOURCES = frozenset(
    {
        *("name", "description", "project_id", "is_public", "wake_on_request"),
        *("network", "traffic_rules", "idle_stop_minutes", "public_ports", "program_policy"),
    }
)
DEFAULT_NETWORK: Network = "packages"
MIN_CPU, MAX_CPU, DEFAULT_CPU = 1, 8, 1.0
MIN_MEMORY_GB, MAX_MEMORY_GB, DEFAULT_MEMORY_GB = 0.5, 16, 1.0
LONGEST_RUN = timedelta(days=7)
DEFAULT_RUN = timedelta(days=1)
"""How long it runs at most, unless it is requested otherwise."""
DEFAULT_IDLE_STOP = timedelta(hours=1)
"""After how long without use it is stopped, unless it is requested otherwise."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    SUBJECT: ClassVar[str] = "sandbox_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    sandbox_id: str
    name: str
    description: str | None
    template_id: str
    owner_account_id: str
    project_id: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    created_at: datetime
    updated_at: datetime
    is_public: bool = False
    """Whether anyone may open its ports."""
    public_ports: Sequence[int] | None = None
    """Those that anyone may open, if not all are public."""
    wake_on_request: bool = False
    """Whether a request to one of its ports starts it."""
    metadata: Mapping[str, str] | None = None
    """Its owner's labels, to find it again."""
    recycle_on_timeout: bool = False
    """Whether it is recycled at its timeout, and not stored to be started again."""
    keeps_memory: bool = False
    """Whether its processes are kept when it stops, if its isolation can keep them."""
    network: Network = "none"
    """Which hosts it may reach."""
    traffic_rules: Mapping[str, Any] | None = None
    """Further egress and ingress rules, see `TrafficRules`."""
    environment: str | None = None
    """Its root file system; None is the host's /usr."""
    isolation: IsolationMode | None = None
    """What its last machine was isolated by; its next ones are so at least."""
    folder: str | None = None
    """The folder of its program in its files; None is the top."""
    archive_id: str | None = None
    """The archive that it started with, in place of its template's repository."""
    idle_stop_minutes: int | None = None
    """After how long without use it is stopped; None is never."""
    program_policy: ProgramPolicy | None = None
    """What follows when its program ends; None is `on_failure`."""
    volumes: Sequence[Mapping[str, Any]] | None = None
    """The `name`, `path` and `read_only` of each, which are mounted while it starts and runs."""
    program: Mapping[str, Any] | None = None
    """The state of its program while it runs, see `program_record`."""
    status: Status = Status.CREATED
    status_reason: str | None = None
    attempt: int = 0
    """Counts its starts; part of the run id."""
    access_version: int = 0
    """Access tokens of another version are not valid: a stop raises it, a pause does not."""
    node: str | None = None
    """The node that runs it or ran it last, and may still have files of it."""
    preview_url: str | None = None
    latest_snapshot_id: str | None = None
    snapshot_bytes: int | None = None
    snapshot_has_memory: bool = False
    """Whether its processes are in its snapshot, and go on at its next start."""
    snapshot_taken_at: datetime | None = None
    snapshot_expires_at: datetime | None = None
    storage_counted_until: datetime | None = None
    """The time up to which the snapshot's storage is on usages."""
    expiry_told_at: datetime | None = None
    """When its owner was warned that the snapshot expires."""
    started_at: datetime | None = None
    stopped_at: datetime | None = None
    timeout_at: datetime | None = None
    recycled_at: datetime | None = None
    last_seen_at: datetime | None = field(default=None, metadata=DATA)
    """When its node last reported the attempt alive, for other nodes."""
    last_used_at: datetime | None = field(default=None, metadata=DATA)
    """When it was last used, approximately; maintained while it has `idle_stop_minutes`."""
    sequence: int = 0

    @property
    def has_memory_to_keep(self) -> bool:
        """Whether its processes are kept when it stops now."""
        return self.keeps_memory and self.can_keep_memory

    @property
    def can_keep_memory(self) -> bool:
        return self.isolation == "gvisor"

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    @property
    def has_all_files_stored(self) -> bool:
        """Whether the files of its last run, if there was one, are in its snapshot."""
        if self.started_at is None:
            return True
        return self.snapshot_taken_at is not None and self.snapshot_taken_at >= self.started_at

    @property
    def consumer(self) -> Consumer:
        return Consumer(self.sandbox_id, self.owner_account_id, self.project_id)


@dataclass(frozen=True, slots=True)
class PricedSandbox:
    """A sandbox, and the cost so far of all its runs and its storage."""

    sandbox: Sandbox
    cost: Decimal
    currency: str


@dataclass(frozen=True, slots=True)
class SandboxFilter:
    status: Status | None = None
    project_id: str | None = None
    template_id: str | None = None
    search: str | None = None
    is_recycled: bool | None = None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Of one start. The run lasts for `seconds` at most; by default for the sandbox's own time."""

    seconds: int | None = None
    is_launched: bool = True
    """Whether its program is started; if not, what it had in memory does not go on either."""
    restores_memory: bool = True
    """Whether its processes go on, if its snapshot has them."""


DEFAULT_OPTIONS = RunOptions()


@dataclass(frozen=True, slots=True)
class NewSandbox:
    name: str
    template_id: str
    project_id: str | None
    description: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = False
    wake_on_request: bool = False
    recycle_on_timeout: bool = False
    keeps_memory: bool = False
    public_ports: Sequence[int] | None = None
    program_policy: ProgramPolicy | None = None
    network: Network | None = None
    """None is the template's."""
    traffic_rules: Mapping[str, Any] | None = None
    idle_stop_minutes: int | None = None
    archive_id: str | None = None
    """The archive to start with; None is the template's."""
    isolation: IsolationMode | None = None
    """What made that archive."""
    volumes: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes that an owner wants, by field; others stay."""

    values: Mapping[str, Any]

    @property
    def moves(self) -> bool:
        return "project_id" in self.values

    @property
    def touches_resources(self) -> bool:
        return not self.values.keys() <= _NO_RESOURCES


@dataclass(frozen=True, slots=True)
class ProjectState:
    """A fact: the project is this account's and not deleted; whether it is archived, and whether
    the account is active."""

    project_id: str
    owner_account_id: str
    is_archived: bool
    is_owner_active: bool = True


def create_sandbox(
    new: NewSandbox,
    *,
    sandbox_id: str,
    account_id: str,
    template: Template | None,
    project: ProjectState | None,
    quota: CountQuota,
    cause: Cause,
) -> Transition[Sandbox]:
    """From a template that the account may use, in one of its projects. SandboxesLimitError."""
    usable = require_usable(template, account_id)
    state = require_writable(project)
    _require_minimum(usable, cpu=new.cpu_spec, memory_gb=new.memory_spec)
    quota.require(errors.SandboxesLimitError)
    requested = {each.name: getattr(new, each.name) for each in fields(new)}
    resolved = {
        "project_id": state.project_id,
        "network": new.network or usable.network or DEFAULT_NETWORK,
        "archive_id": new.archive_id or usable.archive_of(None),
        "metadata": dict(new.metadata) or None,
    }
    sandbox = Sandbox(
        **requested | resolved,
        sandbox_id=sandbox_id,
        owner_account_id=account_id,
        environment=usable.environment,
        folder=usable.repository_folder,
        created_at=cause.at,
        updated_at=cause.at,
    )
    return created(sandbox, "sandbox.created", cause, preconditions=(state, quota))


def update_sandbox(
    sandbox: Sandbox,
    changes: Changes,
    *,
    template: Template | None,
    project: ProjectState | None,
    cause: Cause,
    target: ProjectState | None = None,
) -> Transition[Sandbox] | None:
    """Name, description, project, access and network at any time, resources only while it is
    inactive; a deleted template prevents only the latter. `target` is the project that it is moved
    to, if any. None if nothing changes."""
    _require_not_recycled(sandbox)
    if changes.touches_resources and sandbox.is_active:
        raise errors.SandboxBusyError
    states = {require_writable(project)}
    if changes.moves:
        states.add(require_writable(target))
    after: Sandbox = replace(sandbox, **changes.values)
    if changes.touches_resources:
        usable = require_usable(template, sandbox.owner_account_id)
        _require_minimum(usable, cpu=after.cpu_spec, memory_gb=after.memory_spec)
    if after == sandbox:
        return None
    after = replace(after, updated_at=cause.at)
    if after.idle_stop_minutes != sandbox.idle_stop_minutes:
        after = replace(after, last_used_at=cause.at)  # its use was not recorded before
    return changed(sandbox, after, "sandbox.updated", cause, preconditions=tuple(states))


def end_access(
    sandbox: Sandbox, cause: Cause, *, stops_waking: bool = False
) -> Transition[Sandbox] | None:
    """Its access tokens are no longer valid; with `stops_waking` only its owner starts it from now
    on. None if it is recycled."""
    if sandbox.status is Status.RECYCLED:
        return None
    after = replace(sandbox, access_version=sandbox.access_version + 1, updated_at=cause.at)
    if stops_waking:
        after = replace(after, wake_on_request=False)
    return changed(sandbox, after, "sandbox.updated", cause)


@dataclass(frozen=True, slots=True)
class StartFacts:
    """A sandbox, and what its start depends on, as they were read."""

    sandbox: Sandbox
    template: Template | None
    project: ProjectState | None


@dataclass(frozen=True, slots=True)
class ApprovedStart:
    """A sandbox that may be started, as long as the preconditions hold."""

    sandbox: Sandbox
    preconditions: tuple[Any, ...]

    def begin(self, *, node: str, cause: Cause) -> Transition[Sandbox]:
        """A new attempt. Its node counts as alive at the time of `cause`."""
        after = replace(
            self.sandbox,
            status=Status.STARTING,
            status_reason=None,
            attempt=self.sandbox.attempt + 1,
            node=node,
            preview_url=None,
            program=None,
            timeout_at=None,
            last_seen_at=cause.at,
            updated_at=cause.at,
        )
        return changed(
            self.sandbox, after, "sandbox.starting", cause, preconditions=self.preconditions
        )


def approve_start(facts: StartFacts, quota: QuotaCheck) -> ApprovedStart | None:
    """None if it is already starting or running. With a snapshot it needs no template."""
    sandbox = facts.sandbox
    _require_not_recycled(sandbox)
    if sandbox.is_active:
        return None
    if sandbox.latest_snapshot_id is None:
        require_usable(facts.template, sandbox.owner_account_id)
    state = require_writable(facts.project)
    quota.require(errors.QuotaExceededError)
    return ApprovedStart(sandbox, (state, quota))


def require_files_here(sandbox: Sandbox, *, node: str, has_snapshot: bool) -> None:
    """Raises SandboxElsewhereError if a start on this node would lack files that another node may
    still have. `has_snapshot` is whether this node can restore its snapshot."""
    is_stored_here = has_snapshot or sandbox.latest_snapshot_id is None
    if not (is_stored_here and sandbox.has_all_files_stored):
        require_here(sandbox.node, node=node, error=errors.SandboxElsewhereError)


def require_usable(template: Template | None, account_id: str) -> Template:
    if template is None or not template.is_visible_to(account_id):
        raise errors.TemplateNotUsableError
    return template


def require_writable(project: ProjectState | None) -> ProjectState:
    if project is None:
        raise errors.ProjectNotUsableError
    if not project.is_owner_active:
        raise errors.OwnerInactiveError
    if project.is_archived:
        raise errors.ProjectReadOnlyError
    return project


def _require_not_recycled(sandbox: Sandbox) -> None:
    if sandbox.status is Status.RECYCLED:
        raise errors.SandboxRecycledError


def _require_minimum(template: Template, *, cpu: float, memory_gb: float) -> None:
    min_cpu, min_memory = template.min_cpu_required, template.min_memory_required
    if cpu < min_cpu or memory_gb < min_memory:
        raise errors.ResourcesTooSmallError(
            f"This template needs at least {min_cpu:g} vCPU and {min_memory:g} GB of memory.",
            details={"min_cpu_required": min_cpu, "min_memory_required": min_memory},
        )
