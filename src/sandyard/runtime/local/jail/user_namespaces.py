"""User namespaces that give a sandbox its own root and users, without privileges outside.

bubblewrap by itself maps one id alone. It is given two namespaces instead: one that owns the mounts
and the network, and one below it, where the sandbox's processes are. Root there may do nothing
to what the upper one owns.
"""

import os
import resource
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.local.host.system_calls import call
from sandyard.runtime.local.jail.native_programs import program_file, start_program, unshare_words

IDS = 65_536
USER = 1000
_NEW_USER = 0x10000000
_PR_SET_DUMPABLE = 4
_FIRST_ID = 2_000_000_000
_SANDBOXES = 10_000
_PROCESSES_OF_OURS = 16
_DEEPEST = "1"
"""The maximum of user namespaces below the upper one: the sandbox's."""

_WRITER, _READER = 0, 1
"""Its descriptors."""

_MAKING = threading.Lock()
"""Children of concurrent threads would inherit each other's pipes, and wait forever for them to
close."""


@dataclass(frozen=True, slots=True)
class UserNamespaces:
    """Descriptors of the namespace that owns the others, and of the sandbox's."""

    owner: int
    sandbox: int

    def close(self) -> None:
        os.close(self.owner)
        os.close(self.sandbox)


def root_of(uid: int) -> int:
    """The uid outside of root in the sandbox whose user is `uid` outside."""
    return _FIRST_ID + (uid % _SANDBOXES) * IDS


def make_user_namespaces(uid: int, *, processes: int) -> UserNamespaces:
    """Owned by `uid`, with at most this many processes of all users together. Raises OSError."""
    with _MAKING:
        return _make(uid, processes)


def _make(uid: int, processes: int) -> UserNamespaces:
    reader, writer = os.pipe2(os.O_CLOEXEC)
    heard, answering = os.pipe2(os.O_CLOEXEC)
    pid = _fork(lambda: _own(uid, processes, writer, heard), without=(reader, answering))
    os.close(writer)
    os.close(heard)
    try:
        _require(os.read(reader, 1))
        owner = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        _map(pid, _extents(root_of(uid), uid))
        os.write(answering, b"1")
        below = int(_require(os.read(reader, 16)))
        inside = os.open(f"/proc/{below}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(answering)
        os.close(reader)
        os.waitpid(pid, 0)
    return UserNamespaces(owner, inside)


def _own(uid: int, processes: int, writer: int, heard: int) -> None:
    """The owner of both. It exits when its pipe is closed."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)  # otherwise its maps can't be written
    most = processes + _PROCESSES_OF_OURS
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
    call("unshare", _NEW_USER)
    os.write(writer, b"1")
    os.read(heard, 1)
    _write(Path("/proc/sys/user/max_user_namespaces"), _DEEPEST)
    ready, readying = os.pipe2(os.O_CLOEXEC)
    waiting, ending = os.pipe2(os.O_CLOEXEC)
    pid = _spawn_below(readying, waiting) or _fork(
        lambda: _stay_below(readying, waiting), without=(writer, heard, ready, ending)
    )
    os.close(readying)
    _require(os.read(ready, 1))
    _map(pid, _extents(0, USER))
    os.write(writer, str(pid).encode())
    os.read(heard, 1)
    os.close(ending)
    os.waitpid(pid, 0)


def _spawn_below(readying: int, waiting: int) -> int | None:
    """The same as a spawned process, which copies no memory; None where that is not possible."""
    if (program := start_program()) is None:
        return None
    ends = ((readying, _WRITER), (waiting, _READER))
    actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in ends]
    with suppress(PermissionError), program_file(program) as path:
        words = unshare_words(_NEW_USER, writer=_WRITER, reader=_READER)
        return os.posix_spawn(path, words, {}, file_actions=actions)
    return None


def _stay_below(readying: int, waiting: int) -> None:
    call("unshare", _NEW_USER)
    os.write(readying, b"1")
    os.read(waiting, 1)


def id_extents(uid: int) -> Sequence[tuple[int, int, int]]:
    """The ids of the sandbox whose user is `uid` outside: inside, outside, and how many."""
    return _extents(root_of(uid), uid)


def _extents(root: int, user: int) -> Sequence[tuple[int, int, int]]:
    """Ids from 0 map to those from `root`, except the user's, which maps to `user`. A range of the
    upper namespace that spans two of its extents could not be mapped again."""
    after = USER + 1
    return ((0, root, USER), (USER, user, 1), (after, root + after, IDS - after))


def _map(pid: int, extents: Sequence[tuple[int, int, int]]) -> None:
    lines = "".join(f"{inside} {outside} {size}\n" for inside, outside, size in extents)
    for name in ("uid_map", "gid_map"):
        _write(Path(f"/proc/{pid}/{name}"), lines)


def _write(path: Path, content: str) -> None:
    """In one call, as the kernel requires."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def _require(answer: bytes) -> bytes:
    if not answer:
        raise ChildProcessError("a user namespace could not be created")
    return answer


def _fork(work: Callable[[], None], *, without: Iterable[int]) -> int:
    """A child without these descriptors: a pipe ends when all its ends are closed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for descriptor in without:
            os.close(descriptor)
        work()
        code = 0
    finally:
        os._exit(code)
