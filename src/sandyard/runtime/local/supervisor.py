"""The process beside each sandbox: starts it, holds its deadline and limits, records its end.

`python -m sandyard.runtime.local.supervisor <folder> [--close]`, on the standard library
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
from sandyard.runtime.errors import (
    OverLimitError,
    RestoreFailedError,
    StartFailedError,
    StoppedWhileStartingError,
    SupervisorLostError,
)
from sandyard.runtime.lifecycle import end_message, web_command
from sandyard.runtime.local import checkout, processes, snapshots, workspace
from sandyard.runtime.local.deadline import until_deadline
from sandyard.runtime.local.isolation import Isolation, NoIsolation
from sandyard.runtime.local.jail import Jail
from sandyard.runtime.local.mount_namespace import MountNamespace
from sandyard.runtime.local.program import RunningProgram
from sandyard.runtime.local.records import LocalRunFolder, Spec
from sandyard.runtime.local.spawn import first_of
from sandyard.runtime.local.watchdog import Watchdog
from sandyard.runtime.model import Ended, EndReason, Running
from sandyard.runtime.records import remove_folder

_STATIC_SITE = 'exec python3 -m http.server "$PORT" --bind 127.0.0.1'
_STOP_GRACE_SEC = 2.0
_DEADLINE_GRACE_SEC = 0.5
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    def __init__(self, folder: LocalRunFolder, spec: Spec) -> None:
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
        exceeded = asyncio.ensure_future(self._watchdog.run())
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            program = await self._start(exceeded, stopped)
        except StartFailedError as error:
            processes.kill_descendants(os.getpid())
            self._record_failure(error)
            return
        except (SandyardError, OSError) as error:
            self._record_failure(StartFailedError(f"The program could not be started: {error}"))
            raise
        try:
            await self._run_to_end(program, exceeded, stopped)
        finally:
            exceeded.cancel()
            stopped.cancel()

    async def _start(
        self, exceeded: asyncio.Future[EndReason], stopped: asyncio.Future[Any]
    ) -> RunningProgram:
        """The program, listening; or the first thing that went wrong, and nothing left of it."""
        starting = asyncio.ensure_future(self._prepare_and_listen())
        await first_of(starting, exceeded, stopped)
        if starting.done():
            return starting.result()
        starting.cancel()
        await asyncio.wait([starting])
        if stopped.done():
            raise StoppedWhileStartingError
        raise OverLimitError(f"The program was {_words(exceeded.result())} before it listened.")

    async def _prepare_and_listen(self) -> RunningProgram:
        await self._prepare()
        program = await RunningProgram.start(
            self._isolation, self._spec, self._folder, command=self._command()
        )
        self._folder.write_launched()
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
                await snapshots.restore(self._isolation, source, timeout_sec=timeout_sec)
            except snapshots.SnapshotFailedError as error:
                raise RestoreFailedError(f"The snapshot could not be restored: {error}") from error
        elif spec.template is not None:
            template = Path(spec.template)
            await checkout.clone_template(self._isolation, template, timeout_sec=timeout_sec)
        elif spec.repository_url is not None:
            await checkout.clone(
                self._isolation,
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
        is_repository = self._spec.repository_url is not None
        procfile = workspace.read_procfile(self._folder.workspace)
        return web_command(procfile, static_site=None if is_repository else _STATIC_SITE)

    @cached_property
    def _isolation(self) -> Isolation:
        return build_isolation(self._folder, self._spec)

    def _record_failure(self, error: StartFailedError) -> None:
        ended = Ended(
            self._spec.run_id,
            "not_started",
            ended_at=time.time(),
            started_at=self._folder.launched_at(),
            error_code=error.code,
            message=error.message,
        )
        self._folder.write_ended(ended)

    async def _run_to_end(
        self,
        program: RunningProgram,
        exceeded: asyncio.Future[EndReason],
        stopped: asyncio.Future[Any],
    ) -> None:
        port = await program.open_port()
        now = time.time()
        running = Running(
            self._spec.run_id,
            url=f"http://127.0.0.1:{port}",
            started_at=self._folder.launched_at() or now,
            deadline_at=now + self._spec.limits.max_running_sec,
        )
        self._folder.write_running(running)
        deadline = asyncio.ensure_future(until_deadline(self._folder))
        ends: dict[asyncio.Future[Any], tuple[EndReason, float]] = {
            program.exited: ("exited", 0),
            stopped: ("stopped", _STOP_GRACE_SEC),
            deadline: ("timeout", _DEADLINE_GRACE_SEC),
            exceeded: ("killed", 0),
        }
        await first_of(*ends)
        # If several come together, the earliest in the list above tells.
        reason, grace_sec = next(end for future, end in ends.items() if future.done())
        deadline.cancel()
        if reason == "killed":
            reason = exceeded.result()
        code = program.exited.result() if reason == "exited" else None
        await program.end(grace_sec=grace_sec)
        ended = Ended(
            self._spec.run_id,
            reason,
            ended_at=time.time(),
            started_at=running.started_at,
            exit_code=code,
            message=end_message(reason, code),
        )
        await self.close(ended)

    async def close(self, ended: Ended) -> None:
        """Record the end, keep the workspace as a snapshot, record that too."""
        self._folder.write_ended(ended, final=False)
        spec = self._spec
        if ended.has_listened and not self._folder.workspace.is_dir():
            # A restored data dir has the record of a run, not the files that it was writing.
            ended = replace(ended, snapshot_error="those since its last stop are not there")
        elif ended.has_listened:
            try:
                taken = await snapshots.take(
                    self._isolation,
                    Path(spec.snapshot_to),
                    limit_bytes=spec.limits.storage_bytes,
                    timeout_sec=spec.snapshot_timeout_sec,
                )
                ended = replace(ended, snapshot=taken)
            except (snapshots.SnapshotFailedError, OSError) as error:
                ended = replace(ended, snapshot_error=str(error))
        self._folder.write_ended(ended)
        if ended.snapshot is not None:
            remove_folder(self._folder.workspace)

    async def record_lost_end(self) -> None:
        """Record the end of a sandbox whose supervisor was killed."""
        self._folder.write_supervisor()
        running = self._folder.running()
        ended = self._folder.ended(final=False) or Ended(
            self._spec.run_id,
            "killed" if running else "not_started",
            ended_at=self._folder.last_heartbeat_at(),
            started_at=running.started_at if running else self._folder.launched_at(),
            error_code=None if running else SupervisorLostError.code,
            message=end_message("killed") if running else SupervisorLostError().message,
        )
        await self.close(ended)


def build_isolation(folder: LocalRunFolder, spec: Spec) -> Isolation:
    if spec.isolation == "none":
        return NoIsolation(folder.workspace, spec.python)
    memory = spec.limits.memory_bytes
    return Jail(
        folder.workspace,
        spec.python,
        tmp_bytes=memory // 2,
        shared_memory_bytes=memory // 2,
        uid=spec.uid,
        mounts=None if spec.uid is None else MountNamespace(in_use=[folder.path]),
    )


def _words(reason: EndReason) -> str:
    return reason.replace("_", " ")


def _adopt_orphans() -> None:
    """Let processes whose parent ends become children of this one, so that none gets away."""
    if processes.HAS_PROC:
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


async def _main(path: Path, *, is_closing: bool) -> None:
    os.chdir(path)  # sockets are named from here: their whole paths may be too long
    folder = LocalRunFolder(path)
    spec = folder.spec()
    if spec is None:
        raise SystemExit(f"there is nothing to supervise in {path}")
    supervisor = Supervisor(folder, spec)
    if is_closing:
        await supervisor.record_lost_end()
        return
    await supervisor.run()


if __name__ == "__main__":
    # A signal that comes early must not kill: the request to stop is read from the folder too.
    # Handlers, not SIG_IGN, which the program would inherit.
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    asyncio.run(_main(Path(sys.argv[1]), is_closing="--close" in sys.argv[2:]))
