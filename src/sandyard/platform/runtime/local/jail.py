"""The walls around a program: bubblewrap's arguments, and the uid that it runs as."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sandyard.platform.runtime.local import seccomp
from sandyard.platform.runtime.local.stage import Stage

_WORKSPACE = "/workspace"
_TOOLS = "/run/sandyard"
_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_UID_INSIDE = "1000"
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
_MADE_FILES = {
    "/etc/passwd": "sandbox:x:1000:1000::/workspace:/bin/sh\n",
    "/etc/group": "sandbox:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    # The files of a built-in template belong to the server's user, who is a stranger inside.
    "/etc/gitconfig": "[safe]\n\tdirectory = /run/template.git\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}


@dataclass(slots=True)
class Enclosed:
    """A command to be run from outside, and the descriptors that it needs to inherit."""

    uid: int | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    descriptors: list[int] = field(default_factory=list)

    def content(self, content: bytes) -> int:
        """A descriptor from which bubblewrap reads this content."""
        descriptor = os.memfd_create("sandyard")
        self.descriptors.append(descriptor)
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def opened(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.descriptors.append(descriptor)
        return descriptor

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


class Walls(Protocol):
    """What stands between a command and the machine."""

    @property
    def folder(self) -> str:
        """The workspace as a command inside sees it."""
        ...

    @property
    def tools(self) -> str:
        """Where `launch.py`, `relay.py` and `carry.py` are for a command inside."""
        ...

    @property
    def python(self) -> str: ...

    def sees(self, source: Path, *, at: str) -> str:
        """The path by which a command sees a source that was added `at` a path."""
        ...

    def enclose(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,
        capabilities: Iterable[str] = (),
    ) -> Enclosed:
        """The command inside the walls, where it also sees the sources that were added."""
        ...


@dataclass(frozen=True, slots=True)
class Jail:
    """bubblewrap. A command sees a few read-only system folders, the workspace, no network and
    no process but its own."""

    workspace: Path
    python: str
    tmp_bytes: int
    shared_memory_bytes: int
    uid: int | None = None
    stage: Stage | None = None
    """Needed with a `uid`: that one can't enter the server's folders."""
    folder: str = _WORKSPACE
    tools: str = _TOOLS

    def sees(self, source: Path, *, at: str) -> str:  # noqa: ARG002 - where it is outside
        return at

    def enclose(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,
        capabilities: Iterable[str] = (),
    ) -> Enclosed:
        enclosed = Enclosed(self.uid)
        arguments = [
            *("--unshare-all", "--unshare-user", "--disable-userns"),
            *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
            *("--uid", _UID_INSIDE, "--gid", _UID_INSIDE, "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(self.shared_memory_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside
            *("--size", str(self.tmp_bytes), "--tmpfs", "/tmp"),  # noqa: S108 - inside
            *("--bind", str(self._shown(self.workspace)), _WORKSPACE, "--chdir", _WORKSPACE),
        ]
        for path, content in _MADE_FILES.items():
            arguments += ["--ro-bind-data", str(enclosed.content(content.encode())), path]
        for path, source in (added or {}).items():
            arguments += ["--ro-bind", str(self._shown(source)), path]
        for name in ("launch.py", "relay.py", "carry.py"):
            tool = enclosed.opened(Path(__file__).with_name(name))
            arguments += ["--ro-bind-data", str(tool), f"{_TOOLS}/{name}"]
        if (program := seccomp.program()) is not None:
            arguments += ["--seccomp", str(enclosed.content(program))]
        # bubblewrap's own tmpfs would else take any amount of memory.
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"]
        for name, value in {"PATH": _PATH, "HOME": _WORKSPACE, **environment}.items():
            arguments += ["--setenv", name, value]
        enclosed.command = [bubblewrap() or "bwrap", *arguments, "--", *command]
        return enclosed

    def _shown(self, source: Path) -> Path:
        return source if self.stage is None else self.stage.show(source)


@dataclass(frozen=True, slots=True)
class NoWalls:
    """SANDBOX_ISOLATION=none: a command runs as the server's own user and sees what that sees."""

    workspace: Path
    python: str

    @property
    def folder(self) -> str:
        return str(self.workspace)

    @property
    def tools(self) -> str:
        return str(Path(__file__).parent)

    def sees(self, source: Path, *, at: str) -> str:  # noqa: ARG002 - nothing is moved
        return str(source)

    def enclose(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,  # noqa: ARG002 - everything is seen
        capabilities: Iterable[str] = (),  # noqa: ARG002 - it has those of the server
    ) -> Enclosed:
        plain = {"PATH": os.environ.get("PATH", _PATH), "HOME": self.folder}
        return Enclosed(None, list(command), {**plain, **environment}, self.workspace)


def bubblewrap() -> str | None:
    return shutil.which("bwrap")


def system_python() -> str | None:
    """A Python that is visible inside: one under /usr."""
    return shutil.which("python3", path="/usr/bin:/usr/local/bin")


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
