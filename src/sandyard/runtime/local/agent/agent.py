"""The process that acts inside a machine: it opens files, starts processes and connects to ports.

It enters the machine's namespaces from outside and returns file descriptors; the data read and
written through them does not pass through it. It needs no program of the environment, is invisible
inside, and has only the rights of the machine's user. Its answers are still hostile input, because
they report what it finds there.
"""

import gc
import os
import select
import signal
import socket
import sys
import tarfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.local.agent import files as agent_files
from sandyard.runtime.local.agent import processes as agent_processes
from sandyard.runtime.local.agent.entering import Entry, enter
from sandyard.runtime.local.agent.network import OpenedNetwork
from sandyard.runtime.local.host.processes import rename_process
from sandyard.runtime.local.host.system_calls import close_all_but, die_with_parent
from sandyard.runtime.local.ipc.packets import Answer, Packet, receive_now, send_now

Operation = Callable[..., Answer]
NAME = "sandyard-agent"
"""What `ps` shows of it, and inside of its children. Theirs would be the supervisor's, with paths
of the host."""


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """Where an agent acts, and how it starts commands."""

    workspace: str
    """The machine's `/workspace`; without isolation, a folder of the host."""
    rlimits: dict[str, int]
    environment: dict[str, str]
    """The default variables of every process."""
    launcher: str | None = None
    """The program that sets the limits; without it, the agent forks."""
    entry: Entry | None = None
    """None without isolation."""


class Agent:
    """Answers requests one at a time; an operation that may take long runs in a child, which
    answers."""

    def __init__(self, channel: socket.socket, setup: AgentSetup) -> None:
        paths = Paths(setup.workspace)
        self._starter = agent_processes.Starter(
            paths, setup.rlimits, setup.environment, setup.launcher
        )
        self._channel = channel
        self._quick: dict[str, Operation] = {
            **agent_files.quick_operations(paths),
            "start": self._starter.start,
            "connect": agent_processes.connect,
            "listen": agent_processes.listen,
        }
        self._slow: dict[str, Operation] = agent_files.slow_operations(paths)
        self._asked: dict[int, Any] = {}
        """Request numbers by the pid of the child that answers them."""

    def run(self) -> None:
        """Return when the supervisor has gone."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        waiting = select.poll()
        waiting.register(self._channel, select.POLLIN)
        waiting.register(reader, select.POLLIN)
        while True:
            for descriptor, _ in waiting.poll():
                if descriptor == reader:
                    os.read(reader, 4096)
                    self._reap()
                elif (packet := receive_now(self._channel)) is not None:
                    self._handle(packet)
                else:
                    return

    def kill_children(self) -> None:
        for pid in self._starter.running:
            with suppress(OSError):
                os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self._report_exit(pid, os.waitstatus_to_exitcode(status))

    def _report_exit(self, pid: int, code: int) -> None:
        """Report the exit of a command; nothing waits for other children."""
        number = self._asked.pop(pid, None)
        if pid in self._starter.running:
            self._starter.running.discard(pid)
            self._send({"exited": pid, "code": code})
        elif number is not None and code:
            # If the child had already answered, nothing waits for this any more.
            self._send(_failed_inside(number, f"the process that did it ended with {code}"))

    def _handle(self, packet: Packet) -> None:
        name, number = packet.message.get("op"), packet.message.get("number")
        arguments = packet.message.get("arguments", {})
        try:
            if (operation := self._slow.get(str(name))) is not None:
                self._in_child(operation, number, arguments, packet.descriptors)
            else:
                self._answer(self._quick[str(name)], number, arguments, packet.descriptors)
        except BlockingIOError as error:  # the process limit is reached
            self._send({"number": number, "errno": error.errno or 0, "message": str(error)})
        finally:
            packet.close()

    def _in_child(
        self, operation: Operation, number: Any, arguments: Any, descriptors: tuple[int, ...]
    ) -> None:
        if pid := os.fork():
            self._asked[pid] = number
        else:
            code = 1
            try:
                # It holds the channel open, and the supervisor detects the agent's end by its
                # closing.
                die_with_parent()
                signal.set_wakeup_fd(-1)
                self._answer(operation, number, arguments, descriptors)
                code = 0
            finally:
                os._exit(code)

    def _answer(
        self, operation: Operation, number: Any, arguments: Any, descriptors: tuple[int, ...]
    ) -> None:
        """Send the answer, then do the work that follows it."""
        try:
            answer = operation(*descriptors, **arguments)
        except RefusedError as refused:
            self._send({"number": number, "refused": refused.code, "message": str(refused)})
            return
        except OSError as error:
            self._send({"number": number, "errno": error.errno or 0, "message": str(error)})
            return
        except (RecursionError, MemoryError) as error:
            self._send(_failed_inside(number, type(error).__name__))
            return
        except Exception as error:
            traceback.print_exc()
            self._send({"number": number, "refused": "FAILED", "message": repr(error)})
            return
        self._send({"number": number, "result": answer.result}, answer.data, answer.descriptors)
        for descriptor in answer.descriptors:
            os.close(descriptor)
        if answer.then is not None:
            answer.then()

    def _send(
        self, message: dict[str, Any], data: bytes = b"", descriptors: tuple[int, ...] = ()
    ) -> None:
        send_now(self._channel, message, data, descriptors)


def _failed_inside(number: Any, message: str) -> dict[str, Any]:
    """For what the machine's own programs or files have caused."""
    return {"number": number, "refused": "OPERATION_FAILED", "message": message}


def fork_agent(channel: socket.socket, setup: AgentSetup) -> int:
    """Fork an agent as a child of this process; returns its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        rename_process(NAME)
        _become_agent(channel, setup)
        code = 0
    except BaseException as error:
        traceback.print_exc()
        with suppress(OSError):
            send_now(channel, {"failed": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(code)


def _become_agent(channel: socket.socket, setup: AgentSetup) -> None:
    channel.settimeout(None)
    _raise_oom_score()
    close_all_but(channel.fileno(), 0, 1, 2)
    network = OpenedNetwork()
    if setup.entry is not None:
        network = enter(setup.entry)
        os.chdir("/")
        # No imports from here on: the files at these paths are the machine's.
        sys.path.clear()
        sys.meta_path.clear()
        _look_up_no_users()
        die_with_parent()
    os.umask(0o022)
    gc.freeze()  # forked children then copy no pages for the garbage collector
    gc.disable()
    agent = Agent(channel, setup)
    descriptors = tuple(each.detach() for each in network.sockets)
    message = {"ready": os.getpid(), "missing_network": network.missing}
    send_now(channel, message, descriptors=descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    try:
        agent.run()
    finally:
        agent.kill_children()  # without isolation nothing else does


def _raise_oom_score() -> None:
    """If memory runs out, let the kernel kill this process's children, which inherit the score, and
    not the server. It can't be set later: inside, this process does not own the file."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _look_up_no_users() -> None:
    """Otherwise the C library would load the modules named in the machine's `/etc/nsswitch.conf`
    into this process."""
    for module in ("pwd", "grp"):
        setattr(tarfile, module, None)
