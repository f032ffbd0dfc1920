"""How machines are run here."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sandyard.runtime.local.inside import PackageSources
from sandyard.runtime.local.records import IsolationMode, VolumeKind

_UIDS = range(1_900_000_000, 1_900_010_000)


@dataclass(frozen=True, slots=True)
class LocalPolicy:
    isolation: IsolationMode = "bubblewrap"
    allowed_networks: tuple[str, ...] = ()
    """Private networks from which repositories may be cloned all the same."""
    ca_files: tuple[Path, ...] = ()
    """Certificates that commands inside trust besides the machine's own."""
    kernels: Path | None = None
    """A folder that machines see as `/opt/kernels`, read-only."""
    allowed_hosts: tuple[str, ...] = ()
    """What machines with the network `packages` reach."""
    egress_networks: tuple[str, ...] = ()
    """Private networks that machines may reach all the same."""
    packages: PackageSources = field(default_factory=PackageSources)
    prepare_timeout_sec: float = 60
    snapshot_timeout_sec: float = 120
    log_bytes: int = 1_048_576
    volume: VolumeKind | Literal["auto"] = "auto"
    """Where workspaces lie; `auto` is an image for each where one can be mounted, else a folder."""
    root: Literal["auto", "none"] = "auto"
    """Whether machines have a root of their own, with a system that it can change; `auto` where
    this machine can give them one."""
    cgroup_root: Path | None = None
    """Below it each machine gets a control group; without it a watchdog looks after memory."""
    uids: Sequence[int] = _UIDS
    """For root: uids that nobody else on this machine has."""
