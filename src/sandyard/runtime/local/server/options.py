"""How machines are run here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandyard.runtime.local.records.run_folder import VolumeKind
from sandyard.runtime.local.root_filesystems.settings import PackageSources
from sandyard.runtime.model import GvisorPlatform, IsolationMode

_UIDS = range(1_900_000_000, 1_900_010_000)


@dataclass(frozen=True, slots=True)
class LocalOptions:
    isolation: IsolationMode = "bubblewrap"
    """The weakest; a machine may ask for a stronger one."""
    chooses_isolation: bool = False
    """Whether it is chosen by what this host offers."""
    gvisor_platform: GvisorPlatform = "systrap"
    allowed_networks: tuple[str, ...] = ()
    """Private networks from which repositories may still be cloned."""
    ca_files: tuple[Path, ...] = ()
    """Certificates that commands inside trust in addition to the system's."""
    kernels: Path | None = None
    """A folder that machines see as `/opt/kernels`, read-only."""
    allowed_hosts: tuple[str, ...] = ()
    """Hosts that machines with the network `packages` can reach."""
    egress_networks: tuple[str, ...] = ()
    """Private networks that machines may still reach."""
    packages: PackageSources = field(default_factory=PackageSources)
    prepare_timeout_sec: float = 60
    snapshot_timeout_sec: float = 120
    log_bytes: int = 1_048_576
    volume: VolumeKind | Literal["auto"] = "auto"
    """Where workspaces are stored; `auto` is an image for each where one can be mounted, else a
    folder."""
    root: Literal["auto", "none"] = "auto"
    """Whether machines have their own root, with a system that it can change; `auto` if the host
    supports it."""
    disk_reserve_bytes: int | None = None
    """The part of the disk that machines never use; None is the default."""
    cgroup_root: Path | None = None
    """The parent of the machines' control groups; without it the limit of memory is advisory."""
    uids: Sequence[int] = _UIDS
    """Used if the server is root: uids that nobody else on this host has."""
