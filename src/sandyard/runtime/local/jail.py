"""Isolation by bubblewrap: its arguments, and the uid that a command runs as."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sandyard.runtime.local import pause, seccomp
from sandyard.runtime.local.isolation import PATH, WrappedCommand
from sandyard.runtime.local.mount_namespace import MountNamespace

_WORKSPACE = "/workspace"
_HOME = "/home/user"
"""The workspace by another name, where many programs expect the home of their user."""
_PAUSE = "/run/sandyard/pause"
LAUNCHER = "/run/sandyard/launch"
UID_INSIDE = 1000
_FEWEST_NAMES = 1024
_BYTES_PER_NAME = 8192
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
)
MADE_FILES = {
    "/etc/passwd": "user:x:1000:1000::/home/user:/bin/bash\n",
    "/etc/group": "user:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a command sees besides the workspace, by path inside."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    bound: Mapping[str, Path] = field(default_factory=dict)
    root: Path | None = None
    """A root file system; None is the system's own /usr."""
    executables: Mapping[str, bytes] = field(default_factory=dict)
    """Programs that can be run and not be read, so that nobody can trace them."""

    def has_place(self, path: str) -> bool:
        """Whether something can be mounted there: a root of before may lack some of the places."""
        if self.root is None or path.startswith("/run/"):
            return True
        place = self.root / path.lstrip("/")
        return place.exists() and place.resolve() == self.root.resolve() / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class Jail:
    """bubblewrap. A command sees a few read-only system folders, the workspace, no network and
    no process but its own."""

    workspace: Path
    tmp_bytes: int
    shared_memory_bytes: int
    uid: int | None = None
    mounts: MountNamespace | None = None
    """Needed with a `uid`: that one can't enter the server's folders."""
    folder: str = _WORKSPACE

    def memory_folders(self) -> dict[str, str]:
        """The folders in memory with their limits, also of names: the kernel keeps about
        a kilobyte for each."""
        sizes = {"/tmp": self.tmp_bytes, "/dev/shm": self.shared_memory_bytes}  # noqa: S108 - inside
        return {
            folder: f"size={size},nr_inodes={max(_FEWEST_NAMES, size // _BYTES_PER_NAME)}"
            for folder, size in sizes.items()
        }

    def wrap_machine(self, contents: Contents, *, info: int) -> WrappedCommand:
        """What a machine is while nothing runs in it; where it is comes through `info`."""
        content = pause.program()
        command = ["/bin/sleep", "infinity"] if content is None else [_PAUSE]
        executables = {} if content is None else {_PAUSE: content}
        contents = replace(contents, executables={**contents.executables, **executables})
        return self._wrap(command, ["--info-fd", str(info)], {}, contents, ())

    def wrap(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,
        capabilities: Iterable[str] = (),
    ) -> WrappedCommand:
        contents = Contents(bound=added or {})
        return self._wrap(command, [], environment, contents, capabilities)

    def _wrap(
        self,
        command: Sequence[str],
        options: Sequence[str],
        environment: Mapping[str, str],
        contents: Contents,
        capabilities: Iterable[str],
    ) -> WrappedCommand:
        wrapped = WrappedCommand(self.uid)
        arguments = [
            *("--unshare-all", "--unshare-user", "--disable-userns"),
            *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
            *("--uid", str(UID_INSIDE), "--gid", str(UID_INSIDE), "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *(_system() if contents.root is None else self._root(contents.root)),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(self.shared_memory_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside
            *("--size", str(self.tmp_bytes), "--tmpfs", "/tmp"),  # noqa: S108 - inside
        ]
        for path in filter(contents.has_place, (_WORKSPACE, _HOME)):
            arguments += ["--bind", str(self._reachable(self.workspace)), path]
        arguments += ["--chdir", _WORKSPACE]
        for path in contents.folders:
            arguments += ["--dir", path]
        for path, content in {**MADE_FILES, **contents.files}.items():
            arguments += ["--ro-bind-data", str(wrapped.add_content(content.encode())), path]
        for path, source in contents.bound.items():
            if not contents.has_place(path):
                continue
            arguments += ["--ro-bind", str(self._reachable(source)), path]
        for path, program in contents.executables.items():
            descriptor = str(wrapped.add_content(program))
            arguments += ["--perms", "0111", "--ro-bind-data", descriptor, path]
        for path, target in contents.links.items():
            arguments += ["--symlink", target, path]
        if (rules := seccomp.program()) is not None:
            arguments += ["--seccomp", str(wrapped.add_content(rules))]
        # bubblewrap's own tmpfs would else take any amount of memory.
        read_only = ["/dev", "/"] if contents.root is None else ["/dev", "/run", "/"]
        arguments += [word for path in read_only for word in ("--remount-ro", path)]
        arguments += ["--clearenv", *options]
        for name, value in {"PATH": PATH, "HOME": _WORKSPACE, **environment}.items():
            arguments += ["--setenv", name, value]
        # By a descriptor: inside, everybody sees the words that a command was started with.
        listed = wrapped.add_content("".join(f"{word}\0" for word in arguments).encode())
        wrapped.command = [bubblewrap() or "bwrap", "--args", str(listed), "--", *command]
        return wrapped

    def _root(self, root: Path) -> Iterable[str]:
        yield from ("--ro-bind", str(self._reachable(root)), "/", "--tmpfs", "/run")

    def _reachable(self, source: Path) -> Path:
        return source if self.mounts is None else self.mounts.bind(source)


def bubblewrap() -> str | None:
    return shutil.which("bwrap")


def _system() -> Iterable[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()).removeprefix("/"), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    for file in _SYSTEM_FILES:
        yield from ("--ro-bind-try", file, file)
