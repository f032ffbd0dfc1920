"""`ports.Runtime` at E2B. What it holds is on disk here and in the metadata there."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.platform.runtime.e2b.control import E2bControl
from sandyard.platform.runtime.e2b.endings import Endings
from sandyard.platform.runtime.e2b.errors import (
    E2bGoneError,
    E2bNotMeasuredError,
    E2bTroubleError,
)
from sandyard.platform.runtime.e2b.inside import Inside, Log
from sandyard.platform.runtime.e2b.records import Record, SnapshotRecords
from sandyard.platform.runtime.e2b.starts import E2bPolicy, Starts, check_order
from sandyard.platform.runtime.errors import (
    AttemptEndedError,
    NotHeldError,
    NotRunningError,
    SnapshotNotFoundError,
    StillRunningError,
    start_failure,
)
from sandyard.platform.runtime.local import workspace
from sandyard.platform.runtime.local.specs import check_sizes
from sandyard.platform.runtime.model import (
    Ended,
    FileChanges,
    Held,
    Kind,
    Limits,
    Owner,
    Program,
    Running,
    Sample,
    Snapshot,
    Starting,
    Stopping,
)

if TYPE_CHECKING:
    from e2b import SandboxMetrics

_LOOK_SEC = 0.05
_FOLLOW_SEC = 0.5
_LINES_TOLD = 20


class E2bRuntime:
    def __init__(self, folder: Path, control: E2bControl, policy: E2bPolicy) -> None:
        self._folder = folder.absolute()
        self._control = control
        self._policy = policy
        self._snapshots = SnapshotRecords(self._folder / "snapshots")
        self._endings = Endings(control, self._snapshots, node=policy.node)
        self._starts = Starts(control, self._endings, policy)
        self._open: dict[str, Inside] = {}

    async def check(self) -> None:
        await self._control.check()

    async def start(self, owner: Owner, program: Program, limits: Limits) -> Running:
        held = await self.find(owner)
        if isinstance(held, Stopping) or (isinstance(held, Ended) and held.reason != "not_started"):
            raise AttemptEndedError
        check_order(program, limits)
        if held is None and program.snapshot_id is not None:
            await self._require_snapshot(program.snapshot_id)
        record = self._of(owner)
        await self._begin(record, program, limits)
        held = await self._until(owner, lambda held: not isinstance(held, Starting))
        if isinstance(held, Ended) and held.reason == "not_started":
            lines = _lines(record.saved_log().content)[-_LINES_TOLD:]
            raise start_failure(held.error_code, held.message, log_lines=lines)
        running = record.running()  # also if it has ended since
        if held is None or running is None:
            raise NotHeldError
        return running

    async def stop(self, owner: Owner) -> Ended:
        held = await self.find(owner)
        if held is None:
            raise NotHeldError
        if not isinstance(held, Ended):
            self._of(owner).request_stop()
            held = await self._until(owner, lambda held: isinstance(held, Ended | None))
        if not isinstance(held, Ended):
            raise NotHeldError
        return held

    async def find(self, owner: Owner) -> Held | None:
        record = self._of(owner)
        held = record.held()
        if isinstance(held, Ended | None):
            return held
        with record.lock() as lock:
            return held if lock is None else await self._look(record)

    async def list_held(self, kind: Kind) -> Sequence[Held]:
        await self._kill_strays(kind)
        found = [await self.find(owner) for owner in self._owners(kind)]
        return [held for held in found if held is not None]

    async def forget(self, owner: Owner) -> None:
        held = await self.find(owner)
        if held is None:
            return
        if not isinstance(held, Ended):
            raise StillRunningError
        await asyncio.to_thread(self._remove, self._of(owner))

    async def extend(self, owner: Owner, *, deadline_at: float) -> Running:
        running = await self._get_running(owner)
        record = self._of(owner)
        try:
            ends_at = await self._control.set_end(
                record.sandbox_id() or "", lives_sec=deadline_at - time.time()
            )
        except E2bGoneError as error:
            raise NotRunningError from error
        running = replace(running, deadline_at=ends_at)
        record.move_deadline(running)
        return running

    async def sample(self, owner: Owner) -> Sample:
        running = await self._get_running(owner)
        inside = await self._enter(self._of(owner))
        since = utc_time(running.started_at)
        try:
            measured = await self._control.metrics(inside.sandbox_id, since=since)
        except E2bGoneError as error:
            raise NotRunningError from error
        if not measured:
            raise E2bNotMeasuredError
        use = await inside.use()
        return Sample(
            at=measured[-1].timestamp.timestamp(),
            cpu_seconds=cpu_seconds(measured, since_at=running.started_at),
            memory_bytes=measured[-1].mem_used,
            storage_bytes=use.workspace_bytes,
            processes=use.processes,
        )

    async def tail_logs(self, owner: Owner, *, lines: int) -> Sequence[str]:
        log = await self._read_log(await self._get_held(owner), None)
        return _lines(log.content)[-lines:] if lines > 0 else []

    async def follow_logs(self, owner: Owner, *, lines: int = 0) -> AsyncIterator[str]:
        log = await self._read_log(await self._get_held(owner), None)
        *written, rest = log.content.split(b"\n")
        for line in written[len(written) - lines :] if lines else []:
            yield _text(line)
        read = log.begins_at + len(log.content)
        while True:
            held = await self.find(owner)
            log = await self._read_log(held, read)
            read = max(read, log.begins_at + len(log.content))
            *written, rest = (rest + log.content).split(b"\n")
            for line in written:
                yield _text(line)
            if isinstance(held, Ended | None):
                break
            await asyncio.sleep(_FOLLOW_SEC)
        if rest:
            yield _text(rest)

    async def write_files(self, owner: Owner, changes: FileChanges) -> None:
        await self._get_running(owner)
        record = self._of(owner)
        named = dict.fromkeys(changes.deleted, b"") | dict(changes.written)
        check_sizes(named, record.limits())
        inside = await self._enter(record)
        await inside.apply(changes)

    async def find_snapshot(self, snapshot_id: str) -> Snapshot | None:
        return self._snapshots.find(snapshot_id)

    async def list_snapshots(self) -> Sequence[Snapshot]:
        return self._snapshots.list_all()

    async def delete_snapshot(self, snapshot_id: str) -> None:
        await self._control.delete_snapshot(snapshot_id)
        self._snapshots.remove(snapshot_id)

    def _of(self, owner: Owner) -> Record:
        return Record(self._folder / "held" / owner.kind / owner.id / owner.attempt, owner)

    def _owners(self, kind: Kind) -> list[Owner]:
        found = sorted((self._folder / "held" / kind).glob("*/*"))
        return [Owner(kind, path.parent.name, path.name) for path in found]

    async def _get_held(self, owner: Owner) -> Held:
        held = await self.find(owner)
        if held is None:
            raise NotHeldError
        return held

    async def _get_running(self, owner: Owner) -> Running:
        held = await self._get_held(owner)
        if not isinstance(held, Running):
            raise NotRunningError
        return held

    async def _require_snapshot(self, snapshot_id: str) -> None:
        if not await self._control.has_snapshot(snapshot_id):
            raise SnapshotNotFoundError

    async def _begin(self, record: Record, program: Program, limits: Limits) -> None:
        """Start it, unless that was begun before: of the calls at once, one gets the lock."""
        record.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        while not record.is_begun():
            with record.lock() as lock:
                if lock is None:
                    await asyncio.sleep(_LOOK_SEC)
                elif not record.is_begun():
                    await self._starts.run(record, program, limits)

    async def _until(self, owner: Owner, is_so: Callable[[Held | None], bool]) -> Held | None:
        policy, timeouts = self._policy, self._control.timeouts
        patience = policy.prepare_timeout_sec + policy.listen_timeout_sec
        until = time.monotonic() + patience + timeouts.create_sec + timeouts.snapshot_sec
        while not is_so(held := await self.find(owner)):
            if time.monotonic() > until:
                raise E2bTroubleError(reason=f"nothing happened to {owner}")
            await asyncio.sleep(_LOOK_SEC)
        return held

    async def _look(self, record: Record) -> Held | None:
        """How it stands at E2B, with the lock: what broke off is finished, what is over closed."""
        match held := record.held():
            case Starting():
                return await self._endings.give_up(record)
            case Stopping():
                return await self._endings.finish(record)
            case Running() if record.stop_is_requested():
                return await self._endings.end(record, held, "stopped")
            case Running():
                return await self._look_inside(record, held)
        return held

    async def _look_inside(self, record: Record, running: Running) -> Held:
        """Trouble inside is no end: whether it still runs, E2B says."""
        sandbox_id = record.sandbox_id() or ""
        try:
            code = await (await self._enter(record)).exit_code()
        except (UnavailableError, E2bGoneError):
            self._open.pop(sandbox_id, None)
            if await self._control.state(sandbox_id) != "running":
                return await self._endings.end_as_over(record, running)
            code = None
        if code is not None:
            return await self._endings.end(record, running, "exited", code=code)
        record.beat()
        return running

    async def _enter(self, record: Record) -> Inside:
        """The way into its sandbox; a paused one is left asleep."""
        sandbox_id = record.sandbox_id() or ""
        if sandbox_id not in self._open:
            if await self._control.state(sandbox_id) != "running":
                raise E2bTroubleError(reason=f"{sandbox_id} does not run")
            self._open[sandbox_id] = await self._control.connect(sandbox_id)
        return self._open[sandbox_id]

    async def _read_log(self, held: Held | None, begin: int | None) -> Log:
        """What was written from this byte on; of one that has ended, what was kept of it."""
        if held is None:
            return Log(begin or 0, b"")
        record = self._of(held.owner)
        if isinstance(held, Running):
            return await (await self._enter(record)).read_log(begin)
        log = record.saved_log()
        skipped = max(0, (begin or 0) - log.begins_at)
        return Log(log.begins_at + skipped, log.content[skipped:])

    async def _kill_strays(self, kind: Kind) -> None:
        """End what E2B runs for us and no record names: a create whose answer came too late."""
        for found in await self._control.listed(self._endings.metadata_of_kind(kind)):
            record = self._of(Owner(kind, found.metadata["owner"], found.metadata["attempt"]))
            expected = record.sandbox_id()
            is_starting = expected is None and isinstance(record.held(), Starting)
            if not is_starting and (
                expected != found.sandbox_id or isinstance(record.held(), Ended | None)
            ):
                await self._control.kill(found.sandbox_id)

    def _remove(self, record: Record) -> None:
        self._open.pop(record.sandbox_id() or "", None)
        workspace.remove(record.path)
        try:
            record.path.parent.rmdir()
        except OSError:
            return  # other attempts of the same owner are there


def cpu_seconds(measured: "Sequence[SandboxMetrics]", *, since_at: float) -> float:
    """What the processors were busy for, from the shares that E2B measured now and then."""
    total = 0.0
    for each in measured:
        at = each.timestamp.timestamp()
        total += max(0.0, at - since_at) * each.cpu_used_pct / 100 * each.cpu_count
        since_at = max(since_at, at)
    return total


def _lines(content: bytes) -> list[str]:
    return [_text(line) for line in content.removesuffix(b"\n").split(b"\n")] if content else []


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")
