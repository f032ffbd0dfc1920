"""What enforces the limits of sandboxes on this machine: the strongest that it offers."""

import os
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandyard.runtime.errors import IsolationMissingError, LimitsMissingError
from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.jail.overlays import System, layers_of
from sandyard.runtime.local.jail.user_namespaces import make_user_namespaces
from sandyard.runtime.local.limits import cgroups
from sandyard.runtime.local.records.run_folder import VolumeKind
from sandyard.runtime.local.root_filesystems.base_files import make_base_files
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.storage.volumes import ImageVolume, make_image
from sandyard.runtime.model import IsolationMode

_WORKING: set[tuple[str, int]] = set()
"""What was found to work, with the file system it was tested on; each is tested once."""
GVISOR_NEEDS_ROOT = "gVisor needs sandboxes with their own file system and root"
_PROBE_BYTES = 1 << 20
_PROBE_PROCESSES = 4096
"""High, because sandboxes of another server may have the same uid."""
_CAP_SYS_RESOURCE = 24
_COUNTED = "counted once to twenty times a second, and ended above the limit"
_ISOLATION: Mapping[IsolationMode, str] = {
    "none": "none: programs see what the server sees",
    "bubblewrap": "bubblewrap, with the host's kernel",
    "gvisor": "gVisor, with a kernel for each",
}
_NO_OOM_SCORE = (
    "without CAP_SYS_RESOURCE a sandbox can lower its OOM score, and the kernel may end the server "
    "before it if the host runs out of memory"
)


@dataclass(frozen=True, slots=True)
class Enforcement:
    isolation: IsolationMode = "bubblewrap"
    volume: VolumeKind = "folder"
    has_cgroups: bool = False
    no_image: str | None = None
    """Why workspaces have no file system of their own."""
    no_root: str | None = None
    """Why sandboxes have no root, and can't change what is outside their workspace."""
    has_root: bool = False
    fixes_oom_score: bool = True
    """Whether sandboxes can't lower their OOM score."""

    def describe(self) -> dict[str, str]:
        """For each limit whether the kernel holds it (promised), or it is checked from time to time
        (advisory); and whether there is root."""
        how = "by the API; no sudo inside" if self.isolation == "gvisor" else "with sudo"
        root = f"available, {how}" if self.has_root else f"none: {self.no_root}"
        return {
            "isolation": _ISOLATION[self.isolation],
            "memory": "; ".join([self._memory(), *self.warnings()]),
            **self._cpu_and_processes(),
            "disk": self._disk(),
            "root": root,
        }

    def warnings(self) -> Sequence[str]:
        """With gVisor the score is that of its kernel, which nothing inside can change."""
        is_fixed = self.fixes_oom_score or self.isolation == "gvisor"
        return () if is_fixed else (_NO_OOM_SCORE,)

    def _memory(self) -> str:
        if self.has_cgroups:
            return "promised, by control groups"
        if self.isolation == "gvisor":
            return "counted exactly, twenty times a second, and ended above the limit"
        return f"advisory, {_COUNTED}; SANDBOX_CGROUP_ROOT makes it a promise"

    def _cpu_and_processes(self) -> dict[str, str]:
        if self.has_cgroups:
            return dict.fromkeys(("cpu", "processes"), "promised, by control groups")
        if self.isolation == "none":
            return {"cpu": "advisory, a program can undo it", "processes": "not limited"}
        return {
            "cpu": "promised, by the kernel's affinity, in whole cores",
            "processes": "promised, by the kernel (RLIMIT_NPROC)",
        }

    def _disk(self) -> str:
        if self.volume == "folder":
            return f"advisory, {_COUNTED}; no separate file systems: {self.no_image}"
        if self.volume == "image":
            return "promised, by a file system for each sandbox"
        return "promised, by a tmpfs; files since the last stop are lost if the host fails"


def find_enforcement(options: LocalOptions, folder: Path, now: float) -> Enforcement:
    """What enforces the limits of machines in this folder. Raises LimitsMissingError if an
    explicitly requested mechanism can't be used."""
    found = Enforcement(
        options.isolation,
        has_cgroups=_has_cgroups(options),
        fixes_oom_score=_has_capability(_CAP_SYS_RESOURCE),
    )
    if (missing := _why_no_volume(options, folder, now)) is None:
        no_root = _why_no_root(options, folder)
        volume = "image" if options.volume == "auto" else options.volume
        if options.isolation == "gvisor" and no_root is not None:
            raise IsolationMissingError(f"{GVISOR_NEEDS_ROOT}: {no_root}.")
        return replace(found, volume=volume, no_root=no_root, has_root=no_root is None)
    if options.isolation == "gvisor":
        raise IsolationMissingError(f"{GVISOR_NEEDS_ROOT}: {missing}.")
    if options.isolation != "none" and options.volume not in ("auto", "folder"):
        raise LimitsMissingError(
            f"SANDBOX_VOLUME={options.volume} can't be used here: {missing}. Set it to auto.",
        )
    return replace(found, no_image=missing, no_root=missing)


def _has_capability(number: int) -> bool:
    status = Path("/proc/self/status").read_text()
    [effective] = [line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")]
    return bool(int(effective, 16) >> number & 1)


def _why_no_volume(options: LocalOptions, folder: Path, now: float) -> str | None:
    if options.isolation == "none":
        return "SANDBOX_ISOLATION=none"
    if options.volume == "folder":
        return "SANDBOX_VOLUME=folder"
    if os.geteuid():
        return "the server is not root"
    return None if options.volume == "tmpfs" else _why_no_image(folder, now)


def _has_cgroups(options: LocalOptions) -> bool:
    if options.cgroup_root is None or options.isolation == "none":
        return False
    try:
        cgroups.prepare_root(options.cgroup_root)
    except OSError as error:
        raise LimitsMissingError(
            f"SANDBOX_CGROUP_ROOT can't be used: {error}. Set it to a cgroup v2 folder whose "
            "memory, pids and cpu controllers are delegated to the server, or unset it.",
            reason=str(error),
        ) from error
    return True


def _why_no_image(folder: Path, now: float) -> str | None:
    """None if an image can be made and mounted."""

    def mount_one(top: Path) -> None:
        mounts = MountNamespace(in_use=[top])
        make_image(top / "image", _PROBE_BYTES, blanks=top, now=now)
        ImageVolume(top / "image", top / "mount", mounts, uid=0).attach(is_new=True)
        mounts.unmount(top / "mount")

    return _why_not("image", folder, mount_one)


def _why_no_root(options: LocalOptions, folder: Path) -> str | None:
    """None if the host's files can be mounted with other owners, and changed in an overlay."""
    if options.root == "none":
        return "SANDBOX_ROOT=none"

    def overlay_one(top: Path) -> None:
        uid = options.uids[0]
        made = make_user_namespaces(uid, processes=_PROBE_PROCESSES)
        try:
            mounts = MountNamespace(in_use=[top])
            base_files = make_base_files(top / "skeletons", {}, (), root=top)
            layers = layers_of(base_files, None)
            System(top / "mount", layers, mounts, uid=uid, namespaces=made).try_out()
        finally:
            made.close()

    return _why_not("root", folder, overlay_one)


def _why_not(what: str, folder: Path, attempt: Callable[[Path], None]) -> str | None:
    """Why an attempt fails in an empty folder; None if it succeeds. Runs in its own thread, whose
    mounts are gone when it ends."""
    tried = (what, folder.stat().st_dev)
    problems: list[str] = []
    if tried in _WORKING:
        return None

    def probe() -> None:
        with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as draft:
            top = Path(draft)
            (top / "mount").mkdir()
            try:
                attempt(top)
            except OSError as error:
                problems.append(str(error))

    thread = threading.Thread(target=probe)
    thread.start()
    thread.join()
    if problems:
        return problems[0]
    _WORKING.add(tried)
    return None
