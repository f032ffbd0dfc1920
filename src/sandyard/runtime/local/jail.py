"""Isolation by bubblewrap: its arguments, and the uid that a command runs as."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.local import seccomp
from sandyard.runtime.local.isolation import PATH, WrappedCommand
from sandyard.runtime.local.mount_namespace import MountNamespace

_WORKSPACE = "/workspace"
_TOOLS = "/run/sandyard"
# Read at once: an upgrade may replace the files while a supervisor runs.
_TOOL_FILES = {
    name: Path(__file__).with_name(name).read_bytes()
    for name in ("launch.py", "relay.py", "forward.py")
}
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


@dataclass(frozen=True, slots=True)
class Jail:
    """bubblewrap. A command sees a few read-only system folders, the workspace, no network and
    no process but its own."""

    workspace: Path
    python: str
    tmp_bytes: int
    shared_memory_bytes: int
    uid: int | None = None
    mounts: MountNamespace | None = None
    """Needed with a `uid`: that one can't enter the server's folders."""
    folder: str = _WORKSPACE
    tools: str = _TOOLS

    def path_inside(self, source: Path, *, at: str) -> str:  # noqa: ARG002 - where it is outside
        return at

    def wrap(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        added: Mapping[str, Path] | None = None,
        capabilities: Iterable[str] = (),
    ) -> WrappedCommand:
        wrapped = WrappedCommand(self.uid)
        arguments = [
            *("--unshare-all", "--unshare-user", "--disable-userns"),
            *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
            *("--uid", _UID_INSIDE, "--gid", _UID_INSIDE, "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--size", str(self.shared_memory_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside
            *("--size", str(self.tmp_bytes), "--tmpfs", "/tmp"),  # noqa: S108 - inside
            *("--bind", str(self._reachable(self.workspace)), _WORKSPACE, "--chdir", _WORKSPACE),
        ]
        for path, content in _MADE_FILES.items():
            arguments += ["--ro-bind-data", str(wrapped.add_content(content.encode())), path]
        for path, source in (added or {}).items():
            arguments += ["--ro-bind", str(self._reachable(source)), path]
        for name, source_code in _TOOL_FILES.items():
            tool = wrapped.add_content(source_code)
            arguments += ["--ro-bind-data", str(tool), f"{_TOOLS}/{name}"]
        if (program := seccomp.program()) is not None:
            arguments += ["--seccomp", str(wrapped.add_content(program))]
        # bubblewrap's own tmpfs would else take any amount of memory.
        arguments += ["--remount-ro", "/dev", "--remount-ro", "/", "--clearenv"]
        for name, value in {"PATH": PATH, "HOME": _WORKSPACE, **environment}.items():
            arguments += ["--setenv", name, value]
        wrapped.command = [bubblewrap() or "bwrap", *arguments, "--", *command]
        return wrapped

    def _reachable(self, source: Path) -> Path:
        return source if self.mounts is None else self.mounts.bind(source)


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
