"""A sandbox's life: what may follow what, without any I/O.

`created → starting → running → stopped | timeout → starting …`; `starting → stopped` when it
fails; anything → `recycled`, which is the end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sandyard.platform.sandboxes.errors import (
    ResourcesTooSmallError,
    SandboxBusyError,
    SandboxRecycledError,
)


class Status(StrEnum):
    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    TIMEOUT = "timeout"
    RECYCLED = "recycled"


ACTIVE = frozenset({Status.STARTING, Status.RUNNING})


@dataclass(frozen=True, slots=True)
class Sandbox:
    sandbox_id: str
    name: str
    description: str | None
    template_id: str
    owner_account_id: str
    project_id: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int
    status: Status
    status_reason: str | None
    attempt: int
    node: str | None
    """The machine that it runs on, if its runtime is one machine's own."""
    preview_url: str | None
    latest_snapshot_id: str | None
    snapshot_bytes: int | None
    snapshot_taken_at: datetime | None
    snapshot_expires_at: datetime | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    timeout_at: datetime | None
    recycled_at: datetime | None
    cost: Decimal
    """Of all its runs; of the present one up to now."""

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE


@dataclass(frozen=True, slots=True)
class NewSandbox:
    name: str
    template_id: str
    project_id: str | None
    description: str | None
    cpu_spec: float
    memory_spec: float
    max_running_seconds: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What an owner wants to be different, by the names of the fields; others stay."""

    values: Mapping[str, Any]

    @property
    def touches_resources(self) -> bool:
        return not self.values.keys() <= {"name", "description"}


@dataclass(frozen=True, slots=True)
class Quota:
    """What the sandboxes of one account may take together while they are active."""

    sandboxes: int
    cpu: float
    memory_gb: float


@dataclass(frozen=True, slots=True)
class End:
    """How an attempt ended, as the runtime recorded it."""

    status: Status
    reason: str
    ended_at: datetime
    snapshot_id: str | None = None
    snapshot_bytes: int | None = None
    snapshot_expires_at: datetime | None = None


def decide_start(sandbox: Sandbox) -> int | None:
    """The number of the new attempt; None if one is under way or running already."""
    if sandbox.status is Status.RECYCLED:
        raise SandboxRecycledError
    return None if sandbox.is_active else sandbox.attempt + 1


def decide_change(sandbox: Sandbox, changes: Changes) -> Sandbox:
    """The sandbox as the owner wants it."""
    if sandbox.status is Status.RECYCLED:
        raise SandboxRecycledError
    if changes.touches_resources and sandbox.is_active:
        raise SandboxBusyError
    return replace(sandbox, **changes.values)


def require_minimum(*, cpu: float, memory_gb: float, min_cpu: float, min_memory_gb: float) -> None:
    """Raise ResourcesTooSmallError unless the template has what it needs."""
    if cpu < min_cpu or memory_gb < min_memory_gb:
        raise ResourcesTooSmallError(
            f"This template needs at least {min_cpu:g} vCPU and {min_memory_gb:g} GB of memory.",
            details={"min_cpu_required": min_cpu, "min_memory_required": min_memory_gb},
        )
