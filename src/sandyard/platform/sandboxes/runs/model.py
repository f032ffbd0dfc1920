"""The start and end of a sandbox's runs and snapshots, without any I/O.

Each decision returns transitions that are applied together: a sandbox has an open usage exactly
while it is running, the storage of a snapshot becomes a usage when the snapshot is replaced or
dropped, and the owner is notified of changes by others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sandyard.kit.changes.transitions import Cause, Transition, changed
from sandyard.platform.notifications.model import Notice, NotificationType, create_notification
from sandyard.platform.sandboxes.errors import SandboxBusyError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.runs.end_model import End, StoredSnapshot
from sandyard.platform.usage.model import (
    PriceList,
    Usage,
    close_usage,
    move_usage_deadline,
    open_usage,
    record_run,
    record_storage,
    storage_usage,
)
from sandyard.runtime.model import IsolationMode

LONGEST_START = timedelta(minutes=10)
"""A start that takes longer has failed, on any node."""

Transitions = tuple[Transition[Any], ...]
"""Several that are applied together, the sandbox's own first."""


@dataclass(frozen=True, slots=True)
class NewIds:
    """Ids for the entities that a decision may create."""

    usage_id: str
    """For a run."""
    notification_id: str
    storage_usage_id: str


@dataclass(frozen=True, slots=True)
class Accounting:
    """What a decision needs to record usages and notices."""

    ids: NewIds
    prices: PriceList
    cause: Cause

    def because(self, reason: str | None) -> "Accounting":
        return replace(self, cause=self.cause.because(reason))


@dataclass(frozen=True, slots=True)
class Started:
    attempt: int
    url: str
    started_at: datetime
    timeout_at: datetime
    program: Mapping[str, Any] | None = None
    isolation: IsolationMode | None = None


def record_started(sandbox: Sandbox, run: Started, accounting: Accounting) -> Transitions | None:
    """It runs and its usage opens; None if this attempt is no longer starting."""
    if (sandbox.status, sandbox.attempt) != (Status.STARTING, run.attempt):
        return None
    running = replace(
        sandbox,
        status=Status.RUNNING,
        preview_url=run.url,
        program=run.program,
        isolation=run.isolation,
        started_at=run.started_at,
        timeout_at=run.timeout_at,
        stopped_at=None,
        last_seen_at=accounting.cause.at,
        updated_at=run.started_at,
    )
    usage = open_usage(
        sandbox.consumer,
        usage_id=accounting.ids.usage_id,
        cpu=sandbox.cpu_spec,
        memory_gb=sandbox.memory_spec,
        prices=accounting.prices,
        started_at=run.started_at,
        deadline_at=run.timeout_at,
        cause=accounting.cause,
    )
    return changed(sandbox, running, "sandbox.started", accounting.cause), usage


def move_deadline(
    sandbox: Sandbox, usage: Usage | None, *, attempt: int, deadline_at: datetime, cause: Cause
) -> Transitions | None:
    """Move the deadline of its run, and of its usage; None if it has ended or has this deadline."""
    if (sandbox.status, sandbox.attempt) != (Status.RUNNING, attempt):
        return None
    if sandbox.timeout_at == deadline_at:
        return None
    moved = replace(sandbox, timeout_at=deadline_at, updated_at=cause.at)
    return together(
        changed(sandbox, moved, "sandbox.deadline_moved", cause),
        None if usage is None else move_usage_deadline(usage, deadline_at, cause=cause),
    )


def record_end(
    sandbox: Sandbox, usage: Usage | None, end: End, accounting: Accounting
) -> Transitions | None:
    """End its run and close `usage`, which is open while it runs. A program that started but was
    never recorded as running is still paid for. A new snapshot replaces the previous one. None if
    this attempt has already ended."""
    if not sandbox.is_active or sandbox.attempt != end.attempt:
        return None
    accounting = accounting.because(end.reason)
    ended = replace(
        sandbox,
        status=end.status,
        status_reason=end.reason,
        preview_url=None,
        program=None,
        stopped_at=end.ended_at,
        timeout_at=_deadline_after(sandbox, end),
        updated_at=end.ended_at,
        node=_holder_after(sandbox, end),
    )
    transitions = [_run_usage(sandbox, usage, end, accounting)]
    if end.snapshot is not None:
        transitions.append(storage_until(sandbox, end.ended_at, accounting))
        ended = with_snapshot(ended, end.snapshot, taken_at=end.ended_at)
    elif end.releases_node:
        if end.snapshot_node is None:
            transitions.append(storage_now(sandbox, accounting))
        ended = released_from_node(ended, snapshot_node=end.snapshot_node)
    if not end.by_owner:
        transitions.append(notification_of(_end_notice(sandbox, end), sandbox, accounting))
    return together(changed(sandbox, ended, _end_kind(end), accounting.cause), *transitions)


def _deadline_after(sandbox: Sandbox, end: End) -> datetime | None:
    """An owner's stop before it removes it. One that nobody wants to keep after its time has a
    deadline even if it never ran."""
    if end.by_owner:
        is_over = sandbox.timeout_at is not None and sandbox.timeout_at <= end.ended_at
        return sandbox.timeout_at if is_over else None
    if sandbox.timeout_at is None and sandbox.recycle_on_timeout:
        return end.ended_at + timedelta(seconds=sandbox.max_running_seconds)
    return sandbox.timeout_at


def _holder_after(sandbox: Sandbox, end: End) -> str | None:
    """No node has anything of it if there is no snapshot, the files of the last run were given up
    before this attempt, and it left none itself."""
    has_none = sandbox.latest_snapshot_id is None and not sandbox.has_all_files_stored
    return None if has_none and not end.leaves_files else sandbox.node


def _run_usage(
    sandbox: Sandbox, usage: Usage | None, end: End, accounting: Accounting
) -> Transition[Any] | None:
    if usage is not None:
        return close_usage(usage, ended_at=end.ended_at, cause=accounting.cause)
    if end.started_at is None:
        return None
    longest = timedelta(seconds=sandbox.max_running_seconds)  # without the time that ending took
    return record_run(
        sandbox.consumer,
        usage_id=accounting.ids.usage_id,
        cpu=sandbox.cpu_spec,
        memory_gb=sandbox.memory_spec,
        prices=accounting.prices,
        started_at=end.started_at,
        ended_at=min(end.ended_at, end.started_at + longest),
        cause=accounting.cause,
    )


def request_recycling(sandbox: Sandbox, cause: Cause) -> Transition[Sandbox] | None:
    """Its time is over now, and it is recycled then, whatever happens to this call. None if that is
    requested already, or it has ended."""
    is_requested = sandbox.recycle_on_timeout and (sandbox.timeout_at or cause.at) < cause.at
    if not sandbox.is_active or is_requested:
        return None
    requested = replace(sandbox, recycle_on_timeout=True, timeout_at=cause.at, updated_at=cause.at)
    return changed(sandbox, requested, "sandbox.recycling_requested", cause)


def is_to_recycle(sandbox: Sandbox, *, now: datetime) -> bool:
    """Whether it has ended or was never started, its time is over, and it is not kept then."""
    if not sandbox.recycle_on_timeout or sandbox.is_active:
        return False
    longest = timedelta(seconds=sandbox.max_running_seconds)
    if sandbox.status is Status.CREATED:
        return sandbox.created_at + longest + LONGEST_START <= now
    is_over = sandbox.timeout_at is not None and sandbox.timeout_at <= now
    return sandbox.status is Status.TIMEOUT or (sandbox.status is Status.STOPPED and is_over)


def recycle_sandbox(sandbox: Sandbox, accounting: Accounting) -> Transitions | None:
    """Permanently; its snapshot is dropped. None if it is already recycled. SandboxBusyError if it
    is active: it has to end first."""
    if sandbox.status is Status.RECYCLED:
        return None
    if sandbox.is_active:
        raise SandboxBusyError
    cause = accounting.cause
    recycled = replace(_without_snapshot(sandbox), recycled_at=cause.at, updated_at=cause.at)
    return together(
        changed(sandbox, replace(recycled, status=Status.RECYCLED), "sandbox.recycled", cause),
        storage_now(sandbox, accounting),
    )


def drop_snapshot(sandbox: Sandbox, accounting: Accounting) -> Transitions | None:
    """The next start uses the template's files. None if there is no snapshot, or a run has begun
    that may need it."""
    if sandbox.latest_snapshot_id is None or sandbox.is_active:
        return None
    dropped = replace(_without_snapshot(sandbox), updated_at=accounting.cause.at)
    return together(
        changed(sandbox, dropped, "snapshot.dropped", accounting.cause),
        storage_now(sandbox, accounting),
    )


def expire_snapshot(sandbox: Sandbox, accounting: Accounting) -> Transitions | None:
    """Drop it once it has expired."""
    expires_at = sandbox.snapshot_expires_at
    if expires_at is None or expires_at > accounting.cause.at:
        return None
    return drop_snapshot(sandbox, accounting.because("it expired"))


def warn_of_expiry(
    sandbox: Sandbox, *, warn_before: timedelta, accounting: Accounting
) -> Transitions | None:
    """Notify the owner once that the snapshot expires soon. None while a run may replace it."""
    expires_at = sandbox.snapshot_expires_at
    if expires_at is None or sandbox.expiry_told_at is not None or sandbox.is_active:
        return None
    cause = accounting.cause
    if not cause.at < expires_at <= cause.at + warn_before:
        return None
    warned = replace(sandbox, expiry_told_at=cause.at)
    return (
        changed(sandbox, warned, "snapshot.expiry_warned", cause),
        notification_of(_expiry_notice(sandbox, expires_at), sandbox, accounting),
    )


def count_storage(
    sandbox: Sandbox, *, until: datetime, accounting: Accounting
) -> Transitions | None:
    """The snapshot's storage up to then becomes a usage; None if it is already counted."""
    usage = storage_until(sandbox, until, accounting)
    if usage is None:
        return None
    counted = replace(sandbox, storage_counted_until=until)
    return changed(sandbox, counted, "snapshot.storage_counted", accounting.cause), usage


def uncounted_storage(
    sandbox: Sandbox, *, until: datetime, usage_id: str, prices: PriceList
) -> Usage | None:
    since = sandbox.storage_counted_until
    if sandbox.latest_snapshot_id is None or since is None:
        return None
    return storage_usage(
        sandbox.consumer,
        usage_id=usage_id,
        size_bytes=sandbox.snapshot_bytes or 0,
        prices=prices,
        since=since,
        until=until,
    )


def storage_until(
    sandbox: Sandbox, until: datetime, accounting: Accounting
) -> Transition[Usage] | None:
    usage_id, prices = accounting.ids.storage_usage_id, accounting.prices
    usage = uncounted_storage(sandbox, until=until, usage_id=usage_id, prices=prices)
    return None if usage is None else record_storage(usage, cause=accounting.cause)


def storage_now(sandbox: Sandbox, accounting: Accounting) -> Transition[Usage] | None:
    return storage_until(sandbox, accounting.cause.at, accounting)


def with_snapshot(sandbox: Sandbox, snapshot: StoredSnapshot, *, taken_at: datetime) -> Sandbox:
    """Storage is counted from the end of the run, or from where it was counted to, if that is
    later."""
    return replace(
        sandbox,
        latest_snapshot_id=snapshot.id,
        snapshot_bytes=snapshot.size_bytes,
        snapshot_has_memory=snapshot.has_memory,
        snapshot_taken_at=taken_at,
        snapshot_expires_at=snapshot.expires_at,
        storage_counted_until=max(taken_at, sandbox.storage_counted_until or taken_at),
        expiry_told_at=None,
    )


def released_from_node(sandbox: Sandbox, *, snapshot_node: str | None) -> Sandbox:
    if snapshot_node is None:
        sandbox = _without_snapshot(sandbox)
    return replace(sandbox, node=snapshot_node)


def _without_snapshot(sandbox: Sandbox) -> Sandbox:
    """Then no node has files of it any more, unless those of a run were not stored."""
    return replace(
        sandbox,
        node=None if sandbox.has_all_files_stored else sandbox.node,
        latest_snapshot_id=None,
        snapshot_bytes=None,
        snapshot_has_memory=False,
        snapshot_taken_at=None,
        snapshot_expires_at=None,
        storage_counted_until=None,
        expiry_told_at=None,
    )


def _end_kind(end: End) -> str:
    if not end.has_run:
        return "sandbox.start_failed"
    return "sandbox.timed_out" if end.status is Status.TIMEOUT else "sandbox.stopped"


def _end_notice(sandbox: Sandbox, end: End) -> Notice:
    timed_out = end.status is Status.TIMEOUT
    return Notice(
        title=f"{sandbox.name} {'timed out' if timed_out else 'has ended'}",
        message=f"The sandbox {sandbox.name} ended: {end.reason.rstrip('.')}.",
        type=NotificationType.WARNING if timed_out else NotificationType.ERROR,
        related_entity_type="sandbox",
        related_entity_id=sandbox.sandbox_id,
    )


def recovery_notice(sandbox: Sandbox) -> Notice:
    return Notice(
        title=f"The files of {sandbox.name} were found",
        message="The files of its last run are stored now; the next start has them.",
        type=NotificationType.SUCCESS,
        related_entity_type="sandbox",
        related_entity_id=sandbox.sandbox_id,
    )


def _expiry_notice(sandbox: Sandbox, expires_at: datetime) -> Notice:
    return Notice(
        title=f"The files of {sandbox.name} expire soon",
        message=(
            f"They are removed at {expires_at:%Y-%m-%d %H:%M} UTC. Start the sandbox to keep them."
        ),
        type=NotificationType.WARNING,
        related_entity_type="sandbox",
        related_entity_id=sandbox.sandbox_id,
    )


def notification_of(notice: Notice, sandbox: Sandbox, accounting: Accounting) -> Transition[Any]:
    return create_notification(
        notice,
        notification_id=accounting.ids.notification_id,
        account_id=sandbox.owner_account_id,
        cause=accounting.cause,
    )


def together(*transitions: Transition[Any] | None) -> Transitions:
    return tuple(each for each in transitions if each is not None)
