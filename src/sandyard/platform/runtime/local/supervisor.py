"""The process beside each sandbox: starts it, holds its deadline and limits, records its end.

`python -m sandyard.platform.runtime.local.supervisor <folder> [--close]`, on the standard library
alone so that it starts quickly. It outlives the server, and asks it nothing. With `--close` it
records the end of a sandbox whose supervisor was killed.
"""

import asyncio
import os
import signal
import sys
import time
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sandyard.kit.errors import SandyardError
from sandyard.platform.runtime.errors import (
    OverLimitError,
    ProcfileMissingError,
    RestoreFailedError,
    StartFailedError,
    StoppedWhileStartingError,
    SupervisorLostError,
    WebLineMissingError,
)
from sandyard.platform.runtime.local import checkout, processes, snapshots, workspace
from sandyard.platform.runtime.local.jail import Jail, NoWalls, Walls
from sandyard.platform.runtime.local.program import RunningProgram
from sandyard.platform.runtime.local.records import Folder, Spec
from sandyard.platform.runtime.local.spawn import first_of
from sandyard.platform.runtime.local.stage import Stage
from sandyard.platform.runtime.local.watchdog import Watchdog
from sandyard.platform.runtime.model import Ended, EndReason, Running, web_line

_STATIC_SITE = 'exec python3 -m http.server "$PORT" --bind 127.0.0.1'
_STOP_GRACE_SEC = 2.0
_DEADLINE_GRACE_SEC = 0.5
_LOOK_SEC = 0.25
_BEAT_SEC = 1.0
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    def __init__(self, folder: Folder, spec: Spec) -> None:
        self._folder = folder
        self._spec = spec
        self._stop = asyncio.Event()
        self._watchdog = Watchdog(spec, folder.workspace)

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        self._folder.write_supervisor()
        # The request is written before the signal is sent: one of the two is always seen.
        if self._folder.stop_is_requested():
            self._stop.set()
        _adopt_orphans()
        passed = asyncio.ensure_future(self._watchdog.run())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            program = await self._start(passed, stopped)
        except StartFailedError as error:
            processes.kill_descendants(os.getpid())
            self._record_failure(error)
            return
        except (SandyardError, OSError) as error:
            self._record_failure(StartFailedError(f"The program could not be started: {error}"))
            raise
        try:
            await self._see_through(program, passed, stopped)
        finally:
            passed.cancel()
            stopped.cancel()

    async def _start(
        self, passed: asyncio.Future[EndReason], stopped: asyncio.Future[Any]
    ) -> RunningProgram:
        """The program, listening; or the first thing that went wrong, and nothing left of it."""
        starting = asyncio.ensure_future(self._prepare_and_listen())
        await first_of(starting, passed, stopped)
        if starting.done():
            return starting.result()
        starting.cancel()
        await asyncio.wait([starting])
        if stopped.done():
            raise StoppedWhileStartingError
        raise OverLimitError(f"The program was {_words(passed.result())} before it listened.")

    async def _prepare_and_listen(self) -> RunningProgram:
        await self._prepare()
        program = await RunningProgram.start(
            self._walls, self._spec, self._folder, command=self._command()
        )
        try:
            await program.listening(timeout_sec=self._spec.listen_timeout_sec)
        except BaseException:
            await program.kill()
            raise
        return program

    async def _prepare(self) -> None:
        """Fill the workspace, unless it was given as files."""
        spec = self._spec
        timeout_sec = spec.prepare_timeout_sec
        if spec.restore_from is not None:
            source = Path(spec.restore_from)
            try:
                await snapshots.restore(self._walls, source, timeout_sec=timeout_sec)
            except snapshots.SnapshotTroubleError as error:
                raise RestoreFailedError(f"The snapshot could not be restored: {error}") from error
        elif spec.template is not None:
            template = Path(spec.template)
            await checkout.clone_template(self._walls, template, timeout_sec=timeout_sec)
        elif spec.repository_url is not None:
            await checkout.clone(
                self._walls,
                spec.repository_url,
                folder=self._folder.path,
                allowed_networks=spec.allowed_networks,
                ca_file=Path(spec.git_ca_file) if spec.git_ca_file else None,
                timeout_sec=timeout_sec,
            )
        limit = spec.limits.storage_bytes
        files = self._folder.workspace
        if await asyncio.to_thread(workspace.used_bytes, files, give_up_above=limit) > limit:
            raise OverLimitError("The files are larger than the storage that this may use.")

    def _command(self) -> str:
        procfile = workspace.read_procfile(self._folder.workspace)
        if procfile is None:
            if self._spec.repository_url is not None:
                raise ProcfileMissingError
            return _STATIC_SITE
        command = web_line(procfile)
        if command is None:
            raise WebLineMissingError
        return command

    @cached_property
    def _walls(self) -> Walls:
        return build_walls(self._folder, self._spec)

    def _record_failure(self, error: StartFailedError) -> None:
        ended = Ended(
            self._spec.owner,
            "not_started",
            ended_at=time.time(),
            error_code=error.code,
            message=error.message,
        )
        self._folder.write_ended(ended)

    async def _see_through(
        self,
        program: RunningProgram,
        passed: asyncio.Future[EndReason],
        stopped: asyncio.Future[Any],
    ) -> None:
        port = await program.open_to_visitors()
        now = time.time()
        running = Running(
            self._spec.owner,
            url=f"http://127.0.0.1:{port}",
            started_at=now,
            deadline_at=now + self._spec.limits.max_running_sec,
        )
        self._folder.write_running(running)
        deadline = asyncio.ensure_future(self._until_deadline())
        ends: dict[asyncio.Future[Any], tuple[EndReason, float]] = {
            program.exited: ("exited", 0),
            stopped: ("stopped", _STOP_GRACE_SEC),
            deadline: ("timeout", _DEADLINE_GRACE_SEC),
            passed: ("killed", 0),
        }
        await first_of(*ends)
        # If several come together, the earliest in the list above tells.
        reason, grace_sec = next(end for future, end in ends.items() if future.done())
        deadline.cancel()
        if reason == "killed":
            reason = passed.result()
        code = program.exited.result() if reason == "exited" else None
        await program.end(grace_sec=grace_sec)
        ended = Ended(
            self._spec.owner,
            reason,
            ended_at=time.time(),
            started_at=running.started_at,
            exit_code=code,
            message=_message(reason, code),
        )
        await self.close(ended)

    async def _until_deadline(self) -> None:
        """Return at the deadline as it stands then; note in between that the program lives."""
        beat_at = 0.0
        while True:
            running = self._folder.running()
            now = time.time()
            left = running.deadline_at - now if running else 0
            if left <= 0:
                return
            if abs(now - beat_at) >= _BEAT_SEC:
                beat_at = now
                self._folder.beat()
            await asyncio.sleep(min(left, _LOOK_SEC))

    async def close(self, ended: Ended) -> None:
        """Record the end, keep the workspace as a snapshot, record that too."""
        self._folder.write_ended(ended, final=False)
        spec = self._spec
        if ended.started_at is not None:
            try:
                taken = await snapshots.take(
                    self._walls,
                    Path(spec.snapshot_to),
                    limit_bytes=spec.limits.storage_bytes,
                    timeout_sec=spec.snapshot_timeout_sec,
                )
                ended = replace(ended, snapshot=taken)
            except (snapshots.SnapshotTroubleError, OSError) as error:
                ended = replace(ended, snapshot_trouble=str(error))
        self._folder.write_ended(ended)
        if ended.snapshot is not None:
            workspace.remove(self._folder.workspace)

    async def close_for_another(self) -> None:
        """Record the end of a sandbox whose supervisor was killed."""
        self._folder.write_supervisor()
        running = self._folder.running()
        ended = self._folder.ended(final=False) or Ended(
            self._spec.owner,
            "killed" if running else "not_started",
            ended_at=self._folder.last_beat_at(),
            started_at=running.started_at if running else None,
            error_code=None if running else SupervisorLostError.code,
            message=_message("killed", None) if running else SupervisorLostError().message,
        )
        await self.close(ended)


def build_walls(folder: Folder, spec: Spec) -> Walls:
    if spec.isolation == "none":
        return NoWalls(folder.workspace, spec.python)
    memory = spec.limits.memory_bytes
    return Jail(
        folder.workspace,
        spec.python,
        tmp_bytes=memory // 2,
        shared_memory_bytes=memory // 2,
        uid=spec.uid,
        stage=None if spec.uid is None else Stage(needed=[folder.path]),
    )


def _words(reason: EndReason) -> str:
    return reason.replace("_", " ")


def _message(reason: EndReason, code: int | None) -> str:
    return {
        "stopped": "It was stopped.",
        "timeout": "Its time was over.",
        "exited": f"Its program ended by itself, with code {code}.",
        "out_of_memory": "It held more memory than it may, and was ended.",
        "out_of_storage": "It stored more than it may, and was ended.",
        "killed": "Its supervisor was killed; the end is when it was last seen.",
        "not_started": "It did not start.",
    }[reason]


def _adopt_orphans() -> None:
    """Let processes whose parent ends become children of this one, so that none gets away."""
    if processes.HAS_PROC:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def _main(path: Path, *, is_closing: bool) -> None:
    os.chdir(path)  # sockets are named from here: their whole paths may be too long
    folder = Folder(path)
    spec = folder.spec()
    if spec is None:
        raise SystemExit(f"there is nothing to supervise in {path}")
    supervisor = Supervisor(folder, spec)
    if is_closing:
        await supervisor.close_for_another()
        return
    await supervisor.run()


if __name__ == "__main__":
    # A signal that comes early must not kill: the request to stop is read from the folder too.
    # Handlers, not SIG_IGN, which the program would inherit.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    asyncio.run(_main(Path(sys.argv[1]), is_closing="--close" in sys.argv[2:]))
