"""Decisions about runs whose node is silent, without any I/O.

Silence alone ends nothing before the deadline: the program may run on without a server. A run ended
here counts as ended when it was last seen, or at its deadline if that was before. Its node may come
back with the files.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sandyard.kit.changes.transitions import Cause, changed
from sandyard.kit.clock import utc_time
from sandyard.platform.sandboxes.errors import SandboxElsewhereError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.runs import model
from sandyard.platform.sandboxes.runs.end_model import End, StoredSnapshot
from sandyard.platform.sandboxes.runs.model import LONGEST_START, Accounting, Transitions
from sandyard.platform.usage.model import Usage, cap_usage
from sandyard.runtime.model import Ended


@dataclass(frozen=True, slots=True)
class PastRun:
    """An attempt whose end a node has recorded."""

    attempt: int
    started_at: datetime | None
    """When its program started, if it did."""


def is_last_run(run: PastRun, sandbox: Sandbox) -> bool:
    """Whether no later attempt ran, though some may have failed to; a recycled sandbox has none."""
    if sandbox.status is Status.RECYCLED:
        return False
    if run.attempt == sandbox.attempt or run.started_at is None:
        return run.attempt == sandbox.attempt
    return sandbox.started_at is None or run.started_at >= sandbox.started_at


def past_run_of(ended: Ended) -> PastRun:
    began_at = ended.started_at
    return PastRun(int(ended.run_id.attempt), None if began_at is None else utc_time(began_at))


def is_needed(run: Ended, sandbox: Sandbox) -> bool:
    """The logs of the last attempt are retained until the next start, and what is needed to recover
    the files of the last run."""
    has_its_files = run.snapshot is not None and run.snapshot.id == sandbox.latest_snapshot_id
    return has_its_files or is_last_run(past_run_of(run), sandbox)


def last_seen_of(sandbox: Sandbox) -> datetime:
    """The last heartbeat of its attempt; its start, if there was none."""
    begun_at = sandbox.updated_at if sandbox.status is Status.STARTING else sandbox.started_at
    return sandbox.last_seen_at or begun_at or sandbox.updated_at


def deadline_of(sandbox: Sandbox) -> datetime:
    """When its attempt has ended at the latest, even if it is unknown whether it started."""
    if sandbox.status is Status.RUNNING and sandbox.timeout_at is not None:
        return sandbox.timeout_at
    longest = timedelta(seconds=sandbox.max_running_seconds) + LONGEST_START
    return last_seen_of(sandbox) + longest


def end_overdue(
    sandbox: Sandbox,
    usage: Usage | None,
    *,
    silent_for: timedelta,
    accounting: Accounting,
) -> Transitions | None:
    """End a run past its deadline, if its node has been silent for this long; None otherwise."""
    seen_at, due_at = last_seen_of(sandbox), deadline_of(sandbox)
    if max(seen_at + silent_for, due_at) > accounting.cause.at:
        return None
    reason = (
        f"it reached its deadline; its node {sandbox.node} has been silent since"
        f" {seen_at:%Y-%m-%d %H:%M:%S} UTC"
    )
    end = _unseen_end(sandbox, reason)
    return model.record_end(sandbox, usage, end, accounting)


def cap_unreported(
    sandbox: Sandbox, usage: Usage | None, *, node: str, cause: Cause
) -> Transitions | None:
    """A run on another node that does not report to this engine counts up to when it was last seen.
    None if this node runs it, or nothing is counted beyond that."""
    if usage is None or sandbox.node == node:
        return None
    cause = cause.because(f"its node {sandbox.node} does not report here")
    capped = cap_usage(usage, deadline_at=last_seen_of(sandbox), cause=cause)
    return None if capped is None else (capped,)


def cap_ended(_: Sandbox, usage: Usage | None, *, ended: Ended, cause: Cause) -> Transitions | None:
    """A machine that has ended costs nothing more, though it counts as running until its files are
    stored: if its node is silent then, nobody knows when it ended."""
    ended_at = utc_time(ended.ended_at)
    if usage is None or ended_at < usage.start_time:  # of an earlier attempt
        return None
    capped = cap_usage(usage, deadline_at=ended_at, cause=cause.because("its machine has ended"))
    return None if capped is None else (capped,)


def end_lost(
    sandbox: Sandbox,
    usage: Usage | None,
    *,
    asked: Sandbox,
    accounting: Accounting,
) -> Transitions | None:
    """End a sandbox that its own node did not know when it was `asked`; None if it has been started
    since."""
    if (sandbox.status, sandbox.attempt) != (asked.status, asked.attempt):
        return None
    end = _unseen_end(sandbox, "lost with its machine's state")
    return model.record_end(sandbox, usage, end, accounting)


def release_run(
    sandbox: Sandbox,
    usage: Usage | None,
    *,
    reason: str,
    snapshot_node: str | None,
    silent_for: timedelta,
    accounting: Accounting,
) -> Transitions | None:
    """End it without its node, and no longer wait for what that has of it. The next start uses the
    snapshot if `snapshot_node` has it too, and the template otherwise. None if no other node has
    anything of it. Raises SandboxElsewhereError if its node is not silent."""
    cause = accounting.cause
    is_held = sandbox.node is not None or (sandbox.latest_snapshot_id and snapshot_node is None)
    if not is_held or sandbox.status is Status.RECYCLED:
        return None
    if sandbox.node is not None and last_seen_of(sandbox) + silent_for > cause.at:
        raise SandboxElsewhereError(sandbox.node)
    if sandbox.is_active:
        end = replace(_unseen_end(sandbox, reason), releases_node=True, snapshot_node=snapshot_node)
        return model.record_end(sandbox, usage, end, accounting)
    released = replace(
        model.released_from_node(sandbox, snapshot_node=snapshot_node), updated_at=cause.at
    )
    storage = None if snapshot_node else model.storage_now(sandbox, accounting)
    return model.together(
        changed(sandbox, released, "sandbox.released", cause.because(reason)), storage
    )


def recover_snapshot(
    sandbox: Sandbox,
    *,
    snapshot: StoredSnapshot,
    run: PastRun,
    taken_at: datetime,
    node: str,
    accounting: Accounting,
) -> Transitions | None:
    """The files of its last run, which were found on this node after its end was recorded without
    them; they cost from now on, and its owner is notified. None if they are known, were changed
    since, expired or given up."""
    cause = accounting.cause
    if sandbox.is_active or not is_last_run(run, sandbox):
        return None
    if sandbox.snapshot_taken_at is not None and sandbox.snapshot_taken_at > taken_at:
        return None
    if sandbox.latest_snapshot_id == snapshot.id or snapshot.expires_at <= cause.at:
        return None
    recovered = replace(
        model.with_snapshot(sandbox, snapshot, taken_at=taken_at),
        storage_counted_until=cause.at,
        node=node,
        updated_at=cause.at,
    )
    return model.together(
        changed(sandbox, recovered, "snapshot.recovered", cause),
        model.storage_now(sandbox, accounting),
        model.notification_of(model.recovery_notice(sandbox), sandbox, accounting),
    )


def _unseen_end(sandbox: Sandbox, reason: str) -> End:
    seen_at, deadline_at = last_seen_of(sandbox), deadline_of(sandbox)
    return End(
        attempt=sandbox.attempt,
        status=Status.TIMEOUT if seen_at >= deadline_at else Status.STOPPED,
        reason=reason,
        ended_at=min(seen_at, deadline_at),
        has_run=sandbox.status is Status.RUNNING,
    )
