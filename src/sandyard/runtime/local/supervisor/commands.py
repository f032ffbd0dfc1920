"""The processes started by sessions, as managed by the supervisor."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from sandyard.kit.clock import Clock
from sandyard.runtime.local.host import processes
from sandyard.runtime.local.ipc.packets import Packet, readable, writable
from sandyard.runtime.local.supervisor.output import OutputRing, OutputThrottle
from sandyard.runtime.local.supervisor.process_groups import Group

_CHUNK_BYTES = 64 * 1024
_RETAINED_BYTES = 4 << 20
_MOST_AHEAD_BYTES = 2 << 20
"""Of output whose reader is waited for. What a pipe still has at the exit, 1 MiB, fits too."""
_RETAINED_TOTAL_BYTES = 32 << 20
_RETAINED_PROCESSES = 100
_DRAIN_SEC = 0.2
_MOST_EARLY = 10_000
_LOST_CODE = 255
"""Exit code of a process whose exit was not observed."""

Sink = Callable[[bytes], float]
"""Gets a copy of a process's output; returns how long to pause reading."""


class ProcessStarter(Protocol):
    """Starts processes."""

    def group(self, pid: int) -> Group:
        """The group of a process that it has started."""

    async def ask(self, operation: str, arguments: dict[str, Any], /) -> Packet: ...


class RunningCommand:
    """One process: its input and output, and its end."""

    def __init__(
        self,
        state: dict[str, Any],
        group: Group,
        channels: Mapping[str, int],
        ring: OutputRing,
        throttle: OutputThrottle,
        sink: Sink | None = None,
        unattended_sec: float | None = None,
    ) -> None:
        self.state = state
        self.pid: int = state["pid"]
        self._group = group
        self.ring = ring
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._is_draining = asyncio.Event()
        self._throttle = throttle
        self.streams = tuple(channels)
        self.is_terminal = "terminal" in channels
        self._is_attached = asyncio.Event()
        self._has_input_open = True
        self.sink = sink
        """May be set once it is known."""
        self.attach(channels)
        self._unattended_sec = unattended_sec
        self._followers = 0
        self._read_to: int | None = None
        """What has been read by who is waited for."""
        self._hang_up: asyncio.TimerHandle | None = None
        self._leave()

    def attach(self, channels: Mapping[str, int]) -> None:
        """Read and write these from now on, by the names of its streams."""
        self._input = channels.get("stdin", channels.get("terminal", -1))
        for descriptor in channels.values():
            os.set_blocking(descriptor, False)
        self._readers = {
            asyncio.ensure_future(self._copy(stream, descriptor))
            for stream, descriptor in channels.items()
            if stream != "stdin"
        }
        self._is_attached.set()
        if not self._has_input_open:
            self.close_input()

    async def detached(self) -> None:
        """Return when all is read that came before its streams were detached."""
        self._is_attached.clear()
        self._notify()
        if self._readers:
            await asyncio.wait(self._readers)
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    async def _copy(self, stream: str, descriptor: int) -> None:
        while True:
            await readable(descriptor)
            try:
                data = os.read(descriptor, _CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # a terminal whose last process has exited
                data = b""
            if not data:
                break
            self.ring.write(stream, data)
            self._notify()
            pause_sec = self.sink(data) if self.sink is not None else 0
            await self._pause(max(pause_sec, self._throttle.pause_sec()))
            await self._until_read()
        if stream != "terminal":
            os.close(descriptor)

    async def _pause(self, pause_sec: float) -> None:
        """Ends early once the process has ended: little is left to read, and callers wait."""
        await asyncio.sleep(0)
        if pause_sec:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_sec):
                    await self._is_draining.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def until_changed(self) -> None:
        """Return when there is new output, or the process has ended."""
        await self._changed.wait()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Somebody waits for its output."""
        self._followers += 1
        if self._hang_up is not None:
            self._hang_up.cancel()
        try:
            yield
        finally:
            self._followers -= 1
            self._leave()

    @contextmanager
    def paced(self) -> Iterator[None]:
        """It is not read far ahead of `read_to`: when its pipe is full, it waits."""
        self.read_to(0)
        try:
            yield
        finally:
            self.read_to(None)

    def read_to(self, offset: int | None) -> None:
        self._read_to = offset
        self._notify()

    async def _until_read(self) -> None:
        """Not while its streams are detached: what is left in them fits."""
        while (
            self._read_to is not None
            and self.ring.end - self._read_to > _MOST_AHEAD_BYTES
            and self._is_attached.is_set()
        ):
            await self._changed.wait()

    def _leave(self) -> None:
        if self._unattended_sec is not None and not self._followers:
            loop = asyncio.get_running_loop()
            self._hang_up = loop.call_later(self._unattended_sec, self.signal, signal.SIGHUP)

    async def finish(self, code: int, at: float) -> None:
        """Record its exit, after its output; waits only briefly for children that hold its output
        open. A negative code is the signal that ended it."""
        if self.state["exit_code"] is not None:
            return
        end = {"exit_code": code} if code >= 0 else {"exit_code": 128 - code, "signal": -code}
        self.state |= {**end, "ended_at": at}
        self._group.close()
        await self._until_read()
        await self.drain()
        if self.is_terminal:  # its only descriptor is closed below
            for reader in self._readers:
                reader.cancel()
        self.close_input()
        self.ended.set()
        self._notify()

    async def drain(self) -> None:
        """Return when all its output was read, or a moment later."""
        self._is_draining.set()
        await asyncio.wait(self._readers, timeout=_DRAIN_SEC)
        self._is_draining.clear()

    async def write(self, data: bytes, *, timeout_sec: float) -> bool:
        """Whether it accepted all of it. TimeoutError if it accepts nothing for this long."""
        while data:
            await self._is_attached.wait()
            if self._input < 0 or self.ended.is_set():
                return False
            try:
                data = data[os.write(self._input, data) :]
            except BlockingIOError:
                async with asyncio.timeout(timeout_sec):
                    await self._writable()
            except OSError:
                return False
        return True

    async def _writable(self) -> None:
        """Return when it accepts more input, or has ended."""
        waited = [
            asyncio.ensure_future(each) for each in (self.ended.wait(), writable(self._input))
        ]
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waited:
                each.cancel()
            await asyncio.gather(*waited, return_exceptions=True)

    def close_input(self) -> None:
        """A terminal has no end of file, so its end-of-file key is typed."""
        self._has_input_open = self.is_terminal
        if self._input < 0:
            return
        if self.is_terminal and not self.ended.is_set() and self.state["exit_code"] is None:
            with suppress(OSError):
                os.write(self._input, b"\x04")
            return
        os.close(self._input)
        self._input = -1

    def resize(self, columns: int, rows: int) -> None:
        if self._input >= 0:
            self._group.resize(self._input, columns, rows)

    def signal(self, number: int) -> None:
        """Send it to its whole process group."""
        if self.state["exit_code"] is None:
            self._group.signal(number)

    def drop(self) -> None:
        for reader in self._readers:
            reader.cancel()
        self.ring.close()


class CommandTable:
    """All commands; the oldest ended ones are dropped."""

    def __init__(self, folder: Path, clock: Clock, throttle: OutputThrottle | None = None) -> None:
        self._folder = folder
        self._clock = clock
        self._throttle = throttle or OutputThrottle()
        self._commands: dict[str, RunningCommand] = {}
        self._by_pid: dict[int, RunningCommand] = {}
        self._early: dict[int, int] = {}
        """Exit codes of processes that ended before their start was reported."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(
        self, agent: ProcessStarter, command: Mapping[str, Any], *, sink: Sink | None = None
    ) -> Packet | str:
        """The id of the started process, or the agent's refusal packet."""
        names = ("arguments", "environment", "folder", "terminal", "has_input")
        is_program = command["program"] is not None
        asked = {name: command[name] for name in names} | {"is_program": is_program}
        asked["ids"] = command.get("ids")
        packet = await agent.ask("start", asked)
        result = packet.message.get("result")
        if result is None:
            return packet
        channels = dict(zip(result["channels"], packet.descriptors, strict=True))
        process_id = os.urandom(8).hex()
        state = {
            "id": process_id,
            "pid": result["pid"],
            "arguments": command["arguments"],
            "folder": command["folder"],
            "tag": command.get("tag"),
            "is_terminal": "terminal" in channels,
            "is_program": is_program,
            "started_at": self._clock.now(),
            "exit_code": None,
            "ended_at": None,
        }
        self.add(agent, state, channels, sink=sink, unattended_sec=command.get("unattended_sec"))
        self._forget_old()
        return process_id

    def add(
        self,
        agent: ProcessStarter,
        state: dict[str, Any],
        channels: Mapping[str, int],
        *,
        sink: Sink | None = None,
        unattended_sec: float | None = None,
    ) -> None:
        """A process that runs."""
        group, ring = agent.group(state["pid"]), OutputRing(self._folder, size=_RETAINED_BYTES)
        running = RunningCommand(state, group, channels, ring, self._throttle, sink, unattended_sec)
        self._commands[state["id"]] = self._by_pid[running.pid] = running
        if (code := self._early.pop(running.pid, None)) is not None:
            self.record_exit(running.pid, code)

    def running(self) -> "list[RunningCommand]":
        return list(self._by_pid.values())

    def get(self, process_id: Any) -> RunningCommand | None:
        return self._commands.get(process_id)

    def list(self) -> list[dict[str, Any]]:
        return [each.state for each in self._commands.values()]

    def record_exit(self, pid: int, code: int) -> None:
        running = self._by_pid.pop(pid, None)
        if running is None:
            if len(self._early) < _MOST_EARLY:
                self._early[pid] = code
            return
        self._in_background(running.finish(code, self._clock.now()))

    def adopt(self) -> None:
        """Watch for the exits of running processes whose agent is gone."""
        self._early.clear()
        others = set(_children_of_others(self._by_pid))
        for running in [each for pid, each in self._by_pid.items() if pid not in others]:
            self._in_background(self._watch(running))

    async def _watch(self, running: RunningCommand) -> None:
        while (code := _exit_code(running.pid)) is None:  # noqa: ASYNC110 - the kernel tells none
            await asyncio.sleep(0.05)
        self.record_exit(running.pid, code)

    def _in_background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget_old(self) -> None:
        ended = [each for each in self._commands.values() if each.ended.is_set()]
        retained = sum(each.ring.retained for each in ended)
        for each in ended:
            if len(ended) <= _RETAINED_PROCESSES and retained <= _RETAINED_TOTAL_BYTES:
                return
            ended = ended[1:]
            retained -= each.ring.retained
            del self._commands[each.state["id"]]
            each.drop()


def _children_of_others(pids: Iterable[int]) -> Iterator[int]:
    """Processes whose exit another agent reports."""
    for pid in pids:
        parent = processes.parent(pid)
        if parent is not None and parent != os.getpid():
            yield pid


def _exit_code(pid: int) -> int | None:
    """The code of a child that has ended, or its signal below 0; None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return _LOST_CODE
    if not ended:
        return None
    return os.waitstatus_to_exitcode(status)


def valid_signal(number: Any) -> bool:
    return isinstance(number, int) and number in {each.value for each in signal.Signals}
