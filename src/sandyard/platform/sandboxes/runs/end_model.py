"""How an attempt ended, from the runtime's report, without any I/O."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sandyard.kit.changes.events import actor
from sandyard.kit.clock import utc_time
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.runtime.errors import SupervisorLostError
from sandyard.runtime.model import Ended

SYSTEM = actor("system")

_REASONS = {
    "stopped": "stopped by its owner",
    "timeout": "it reached its deadline",
    "out_of_memory": "it exceeded its memory limit",
    "out_of_storage": "it exceeded its storage limit",
    "disk_full": "it wrote files while the server's disk was nearly full",
    "terminated": "its host terminated it, as in a shutdown",
    "killed": "its processes were killed",
}
_LONGEST_REASON = 500
_BEGINNING = 120
_CUT = " … "


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    id: str
    size_bytes: int
    expires_at: datetime
    has_memory: bool = False


@dataclass(frozen=True, slots=True)
class End:
    attempt: int
    status: Status
    reason: str
    ended_at: datetime
    snapshot: StoredSnapshot | None = None
    started_at: datetime | None = None
    """When its program started, if it did and that is known; not for a start that was lost with its
    server, which costs nothing."""
    has_run: bool = True
    """Whether it ever listened."""
    by_owner: bool = False
    leaves_files: bool = True
    """Whether its node may have files of it; not for an attempt that is known not to have run."""
    releases_node: bool = False
    """Whether to stop waiting for what its node may still have of it, snapshot included."""
    snapshot_node: str | None = None
    """In that case, another node that has the snapshot, if one does."""


def end_of(ended: Ended, *, attempt: int, reason: str | None, retention: timedelta) -> End:
    """`reason` is why it was stopped, if not by its owner."""
    was_stopped = ended.reason == "stopped"
    began_at, is_lost = ended.started_at, ended.error_code == SupervisorLostError.code
    return End(
        attempt=attempt,
        status=Status.TIMEOUT if ended.reason == "timeout" else Status.STOPPED,
        reason=reason if reason and was_stopped else reason_of(ended),
        ended_at=utc_time(ended.ended_at),
        snapshot=stored_snapshot(ended, retention=retention),
        started_at=None if not began_at or is_lost else utc_time(began_at),
        has_run=ended.has_run,
        leaves_files=ended.has_run,
        by_owner=was_stopped and not reason,
    )


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """What the jobs look at all the time, of a sandbox that is starting or running."""

    sandbox_id: str
    attempt: int
    status: Status
    started_at: datetime | None
    last_used_at: datetime | None
    idle_stop_minutes: int | None


def idle_reason(sandbox: Sandbox | ActiveRun, *, now: datetime) -> str | None:
    """Why it is to be stopped, if it was not used for as long as its owner allows."""
    minutes, begun_at = sandbox.idle_stop_minutes, sandbox.started_at
    if sandbox.status is not Status.RUNNING or minutes is None or begun_at is None:
        return None
    used_at = max(begun_at, sandbox.last_used_at or begun_at)
    if now - used_at < timedelta(minutes=minutes):
        return None
    unit = "minute" if minutes == 1 else "minutes"
    return f"it was idle: no request, command or terminal for {minutes} {unit}"


def ended_by(ended: Ended, *, recorder: str) -> str:
    """The actor of an end: the one that stopped it and records that, or `system` if it ended by
    itself."""
    return recorder if ended.reason == "stopped" else SYSTEM


def failed_start(attempt: int, *, code: str, message: str, at: datetime) -> End:
    """For an attempt that the runtime has no record of."""
    reason = _shortened(f"{code}: {message}")
    return End(attempt, Status.STOPPED, reason, at, has_run=False, leaves_files=False)


def stored_snapshot(ended: Ended, *, retention: timedelta) -> StoredSnapshot | None:
    if ended.snapshot is None:
        return None
    expires_at = utc_time(ended.ended_at) + retention
    taken = ended.snapshot
    return StoredSnapshot(taken.id, taken.size_bytes, expires_at, taken.has_memory)


def needs_files(sandbox: Sandbox, ended: Ended) -> bool:
    """Whether its files are kept: not if it is recycled after this end."""
    timeout_at, ended_at = sandbox.timeout_at, utc_time(ended.ended_at)
    is_over = ended.reason == "timeout" or (timeout_at is not None and timeout_at <= ended_at)
    return not (sandbox.recycle_on_timeout and is_over)


def reason_of(ended: Ended) -> str:
    """In words that an owner can act on."""
    match ended.reason:
        case "exited":
            reason = f"its program ended with code {ended.exit_code}"
        case "not_started":
            reason = f"{ended.error_code or 'START_FAILED'}: {ended.message}"
        case other:
            reason = _REASONS[other]
    if ended.memory_error:
        reason += f"; its processes could not be kept: {ended.memory_error}"
    if ended.snapshot_error:
        reason += f"; its files could not be stored: {ended.snapshot_error}"
    return _shortened(reason)


def _shortened(reason: str) -> str:
    """Its beginning and its end, where a program's output has the error."""
    if len(reason) <= _LONGEST_REASON:
        return reason
    end = _LONGEST_REASON - _BEGINNING - len(_CUT)
    return f"{reason[:_BEGINNING]}{_CUT}{reason[-end:]}"
