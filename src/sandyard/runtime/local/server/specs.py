"""Builds a supervisor's description of its machine, from the policy and this host."""

from pathlib import Path

from sandyard.kit.free_ports import free_port
from sandyard.runtime.errors import EnvironmentMissingError, SnapshotNotFoundError
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.root_filesystems.base_files import make_skeleton
from sandyard.runtime.local.root_filesystems.settings import (
    ALIASES,
    HOST_ROOT,
    aliases,
    ca_bundle,
    image_environment,
    machine_environment,
    machine_files,
    machine_folders,
)
from sandyard.runtime.local.root_filesystems.store import Environment, Environments
from sandyard.runtime.local.server.enforcement import Enforcement
from sandyard.runtime.local.server.options import LocalPolicy
from sandyard.runtime.local.storage.shared_files import CERTIFICATES, SKELETONS, note_use
from sandyard.runtime.local.storage.snapshots import SnapshotFolder
from sandyard.runtime.model import MachineSpec, RunId

_PORT_INSIDE = 8080


class Specs:
    def __init__(self, folder: Path, policy: LocalPolicy, snapshots: SnapshotFolder) -> None:
        self._folder = folder
        self._policy = policy
        self._snapshots = snapshots
        self._environments = Environments(folder)

    def make(self, run_id: RunId, spec: MachineSpec, enforcement: Enforcement) -> Spec:
        """Raises SnapshotNotFoundError, EnvironmentMissingError."""
        policy = self._policy
        restore_from = self._archive(spec)
        environment = self._environment(spec.root)
        root = HOST_ROOT if environment is None else self._environments.root_of(environment)
        bundle = self._bundle(root)
        has_root = enforcement.has_root
        files = machine_files(
            policy.packages, root=root, has_ca=bundle is not None, has_root=has_root
        )
        folders = machine_folders(root)
        given = None if environment is None else root
        skeleton = self._skeleton(files, folders, given) if has_root else None
        known = aliases(root, has_root=has_root)
        return Spec(
            run_id=run_id,
            limits=spec.limits,
            isolation=policy.isolation,
            restore_from=restore_from,
            snapshot_to=str(self._snapshots.path_of(str(run_id))),
            uid=None,
            port=_PORT_INSIDE if policy.isolation == "bubblewrap" else free_port(),
            lifetime_sec=spec.lifetime_sec,
            allowed_networks=list(policy.allowed_networks),
            ca_file=bundle,
            network=spec.network,
            rules=spec.rules,
            allowed_hosts=list(policy.allowed_hosts),
            egress_networks=list(policy.egress_networks),
            files=files,
            folders=folders,
            links={f"{ALIASES}/{name}": target for name, target in known.items()},
            environment=self._variables(environment, has_ca=bundle is not None),
            root=None if environment is None else str(root),
            kernels=str(policy.kernels.absolute()) if policy.kernels else None,
            prepare_timeout_sec=policy.prepare_timeout_sec,
            snapshot_timeout_sec=policy.snapshot_timeout_sec,
            log_bytes=policy.log_bytes,
            volume=enforcement.volume,
            skeleton=skeleton,
            cgroup_root=str(policy.cgroup_root) if policy.cgroup_root else None,
        )

    def _archive(self, spec: MachineSpec) -> str | None:
        """The archive that the machine starts from."""
        if spec.snapshot_id is None:
            return None if spec.packed is None else str(spec.packed)
        if self._snapshots.find(spec.snapshot_id) is None:
            raise SnapshotNotFoundError
        return str(self._snapshots.path_of(spec.snapshot_id))

    def _environment(self, name: str | None) -> Environment | None:
        """Raises EnvironmentMissingError, also if nothing is isolated."""
        if name is None:
            return None
        if self._policy.isolation == "none":
            raise EnvironmentMissingError("Environments need SANDBOX_ISOLATION=bubblewrap.")
        return self._environments.get(name)

    def _bundle(self, root: Path) -> str | None:
        made = ca_bundle(self._folder / CERTIFICATES, root, *self._policy.ca_files)
        if made is None:
            return None
        note_use(made)
        return str(made)

    def _variables(self, environment: Environment | None, *, has_ca: bool) -> dict[str, str]:
        if self._policy.isolation == "none":
            return {}
        variables = machine_environment(has_ca=has_ca)
        if environment is None:
            return variables
        return image_environment(environment.environment, variables)

    def _skeleton(self, files: dict[str, str], folders: list[str], root: Path | None) -> str:
        made = make_skeleton(self._folder / SKELETONS, files, folders, root=root)
        note_use(made)
        return str(made)
