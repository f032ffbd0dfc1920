"""The agent's operations on processes and ports."""

import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import termios
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NoReturn

from sandyard.runtime.guest import Paths, RefusedError
from sandyard.runtime.guest.channels import Channels, open_pipes, open_terminal
from sandyard.runtime.local.ipc.packets import Answer

FAILURE_AT = 3
"""The descriptor for failures; it is closed when the command runs."""
FAILURE_BYTES = 16
NICE = 5
Step = Literal["limits", "folder", "program"]
_STEPS: tuple[Step, ...] = ("limits", "folder", "program")
_HIGHEST_ERRNO = 4095
_LAUNCH_MS = 10_000
_LOOPBACK = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_UNDER_WAY = (0, errno.EINPROGRESS)


def launch_words(limits: Mapping[int, int]) -> list[str]:
    """The words before the folder, the program and its arguments."""
    return ["launch", *(str(each) for limit in limits.items() for each in limit), "--"]


def parse_failure(report: bytes) -> tuple[Step, int]:
    """The step that failed, and its error. Any process of the machine may have written it."""
    if len(report) != FAILURE_BYTES:
        return "program", errno.EPERM
    code, step = struct.unpack("<qq", report)
    known: Step = _STEPS[step] if 0 <= step < len(_STEPS) else "program"
    return known, max(0, min(-code, _HIGHEST_ERRNO))


def format_failure(step: Step, number: int) -> bytes:
    """In the program's own format."""
    return struct.pack("<qq", -number, _STEPS.index(step))


def hard_limits(rlimits: Mapping[str, int]) -> dict[int, int]:
    """The limits by number, capped at what this process may set."""
    chosen: dict[int, int] = {}
    for name, value in rlimits.items():
        number: int = getattr(resource, name)
        hardest = resource.getrlimit(number)[1]
        chosen[number] = value if hardest == resource.RLIM_INFINITY else min(value, hardest)
    return chosen


class Starter:
    def __init__(
        self,
        paths: Paths,
        rlimits: dict[str, int],
        environment: dict[str, str],
        launcher: str | None,
        *,
        uid: int | None = None,
        launch_ms: int = _LAUNCH_MS,
    ) -> None:
        """`environment` has the default variables of every process; `launcher` is the program that
        sets the limits, if there is one; processes run as `uid`, or as this process's user. A start
        that takes longer than `launch_ms` is aborted."""
        self._paths = paths
        self._limits = hard_limits(rlimits)
        self._environment = environment
        self._launcher = launcher
        self._uid = uid
        self._launch_ms = launch_ms
        self.running: set[int] = set()

    def start(
        self,
        *,
        arguments: list[str],
        environment: dict[str, str],
        folder: str,
        terminal: list[int] | None,
        has_input: bool,
        is_program: bool,
        ids: list[int] | None = None,
    ) -> Answer:
        """Start a process in its own session; returns its pid and the ends of its streams by name.
        It runs with these ids of a user and a group, if this process is root and they are given.
        Raises OSError if it can't be run."""
        environment = self._environment | environment
        program = _find_program(arguments[0], environment.get("PATH", os.defpath))
        channels = (
            open_terminal(*terminal)
            if terminal
            else open_pipes(has_input=has_input, has_stderr=not is_program)
        )
        ids = ids or (None if self._uid is None else [self._uid, self._uid])
        folder = self._paths.real_path(folder)
        launch = _Launch(program, arguments, environment, folder, channels, ids)
        try:
            pid = self._launched(launch)
        except BaseException:
            for descriptor in channels.outer:
                os.close(descriptor)
            raise
        finally:
            channels.close_inner()
        self.running.add(pid)
        return Answer({"pid": pid, "channels": channels.names}, descriptors=channels.outer)

    def _launched(self, launch: "_Launch") -> int:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        try:
            is_spawned = self._launcher and launch.ids in (None, [self._uid, self._uid])
            pid = self._spawn(launch, writer) if is_spawned else self._fork(launch, writer)
        except OSError as error:
            os.close(reader)
            raise _refused(launch.arguments[0], error.errno or 0) from error
        finally:
            os.close(writer)
        report = _read_failure(reader, pid, self._launch_ms)
        if report:
            step, number = parse_failure(report)
            raise _refused(launch.folder if step == "folder" else launch.arguments[0], number)
        return pid

    def _spawn(self, launch: "_Launch", failed: int) -> int:
        ends = [(os.POSIX_SPAWN_DUP2, end, at) for at, end in enumerate(launch.channels.inner)]
        return os.posix_spawn(
            str(self._launcher),
            [*self._words(), launch.folder, launch.program, *launch.arguments],
            launch.environment,
            file_actions=[*ends, (os.POSIX_SPAWN_DUP2, failed, FAILURE_AT)],
            setsigdef=[signal.SIGPIPE],
        )

    def _words(self) -> list[str]:
        words = launch_words(self._limits)
        if self._uid is None:
            return words
        kept = map(str, range(FAILURE_AT + 1))
        user = ["become", str(self._uid), str(os.getpid()), "--", *kept, "--"]
        return [*user, str(self._launcher), *words[1:]]

    def _fork(self, launch: "_Launch", failed: int) -> int:
        """Start it without a launcher, which sets one user's ids alone."""
        pid = os.fork()
        if pid == 0:
            _exec(launch, self._limits, failed)
        return pid


@dataclass(frozen=True, slots=True)
class _Launch:
    program: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    channels: Channels
    ids: list[int] | None


def _exec(launch: _Launch, limits: dict[int, int], failed: int) -> NoReturn:
    step: Step = "limits"
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.setsid()
        for number, descriptor in enumerate(launch.channels.inner):
            os.dup2(descriptor, number)
        if launch.channels.is_terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.nice(NICE)
        for limit, value in limits.items():
            resource.setrlimit(limit, (value, value))
        if launch.ids is not None:
            uid, gid = launch.ids
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        step = "folder"
        os.chdir(launch.folder)
        step = "program"
        os.execve(launch.program, launch.arguments, launch.environment)
    except OSError as error:
        os.write(failed, format_failure(step, error.errno or 0))
    finally:
        os._exit(127)


def _read_failure(reader: int, pid: int, launch_ms: int) -> bytes:
    """The failure reported before the command ran. Other processes of the machine can delay it
    until then."""
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    try:
        if waiting.poll(launch_ms):
            return os.read(reader, FAILURE_BYTES)
        os.kill(pid, signal.SIGKILL)
        return format_failure("program", errno.ETIMEDOUT)
    finally:
        os.close(reader)


def _refused(what: str, number: int) -> RefusedError:
    return RefusedError("COMMAND_REFUSED", f"{what}: {os.strerror(number)}")


def connect(*, port: int) -> Answer:
    """A connection, established or in progress, to the listener on the port."""
    for family, host in _LOOPBACK:
        made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        is_begun = made.connect_ex((host, port)) in _UNDER_WAY
        # A refusal is known by now, but only the second call reports it.
        if is_begun and not made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return Answer(descriptors=(made.detach(),))
        made.close()
    raise OSError(errno.ECONNREFUSED, "nothing listens there")


def listen(*, port: int) -> Answer:
    """A listener on the machine's loopback, for a server outside."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return Answer(listener.getsockname()[1], descriptors=(listener.detach(),))


def _find_program(name: str, path: str) -> str:
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = os.path.join(folder or ".", name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise RefusedError("COMMAND_REFUSED", f"{name}: there is no such program")
