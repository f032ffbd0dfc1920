"""Builds a supervisor's description of its machine, from the options and this host."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.free_ports import free_port
from sandyard.kit.wired import wired
from sandyard.runtime.errors import (
    EnvironmentMissingError,
    SecretsTooLargeError,
    SnapshotNotFoundError,
)
from sandyard.runtime.local.ipc.packets import MOST_BYTES
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.root_filesystems.base_files import make_base_files
from sandyard.runtime.local.root_filesystems.settings import (
    ALIASES,
    HOST_ROOT,
    SYSTEM_BUNDLE,
    aliases,
    ca_bundle,
    image_environment,
    machine_environment,
    machine_files,
    machine_folders,
)
from sandyard.runtime.local.root_filesystems.store import RootFilesystem, RootFilesystems
from sandyard.runtime.local.server.enforcement import Enforcement
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.local.storage.shared_files import BASE_FILES, CERTIFICATES, note_use
from sandyard.runtime.model import IsolationMode, MachineSpec, RunId, stronger
from sandyard.runtime.records.disk_reserve import DiskReserve
from sandyard.runtime.secrets_model import MachineSecrets
from sandyard.runtime.store.archives import ArchiveFolder

_PORT_INSIDE = 8080
VOLUMES = "volumes"
"""The folder of volumes that outlive machines."""
_JAVA = "JAVA_TOOL_OPTIONS"


@wired
class Specs:
    folder: Path
    snapshots: ArchiveFolder
    clock: Clock
    reserve: DiskReserve

    def __post_init__(self) -> None:
        self._root_filesystems = RootFilesystems(self.folder)

    def make(
        self, run_id: RunId, spec: MachineSpec, options: LocalOptions, enforcement: Enforcement
    ) -> Spec:
        """Raises SnapshotNotFoundError, EnvironmentMissingError."""
        isolation = stronger(options.isolation, spec.isolation)
        restore_from = self._archive(spec)
        environment = self._environment(spec.root, isolation)
        root = HOST_ROOT if environment is None else self._root_filesystems.root_of(environment)
        bundle = self._bundle(root, options.ca_files, spec.authority)
        has_root = enforcement.has_root
        files = machine_files(
            options.packages, root=root, has_ca=bundle is not None, has_root=has_root
        )
        folders = machine_folders(root)
        own_root = None if environment is None else root
        system = files
        if bundle is not None and spec.authority:  # for programs that read no variable
            system = files | {f"/{SYSTEM_BUNDLE}": Path(bundle).read_text()}
        base_files = self._base_files(system, folders, own_root) if has_root else None
        known = aliases(root, has_root=has_root)
        return Spec(
            run_id=run_id,
            limits=spec.limits,
            isolation=isolation,
            restore_from=restore_from,
            snapshot_to=str(self.snapshots.path_of(str(run_id))),
            uid=None,
            port=_port(environment) if isolation != "none" else free_port(),
            lifetime_sec=spec.lifetime_sec,
            restores_memory=spec.restores_memory,
            allowed_networks=list(options.allowed_networks),
            ca_file=bundle,
            network=spec.network,
            rules=spec.rules,
            allowed_hosts=list(options.allowed_hosts),
            egress_networks=list(options.egress_networks),
            files=files,
            folders=folders,
            links={f"{ALIASES}/{name}": target for name, target in known.items()},
            environment=_variables(
                environment, isolation, spec.limits.memory_bytes, has_ca=bundle is not None
            ),
            root=None if environment is None else str(root),
            entry=None
            if environment is None or environment.entry is None
            else {**environment.entry},
            kernels=str(options.kernels.absolute()) if options.kernels else None,
            prepare_timeout_sec=options.prepare_timeout_sec,
            snapshot_timeout_sec=options.snapshot_timeout_sec,
            log_bytes=options.log_bytes,
            volume=enforcement.volume,
            base_files=base_files,
            gvisor_platform=options.gvisor_platform,
            cgroup_root=str(options.cgroup_root) if options.cgroup_root else None,
            disk_reserve_bytes=self.reserve.size_bytes(),
            mounts=list(spec.mounts),
            volumes=str(self.folder / VOLUMES),
        )

    def _archive(self, spec: MachineSpec) -> str | None:
        if spec.snapshot_id is None:
            return None if spec.packed is None else str(spec.packed)
        if (found := self.snapshots.find_packed(spec.snapshot_id)) is None:
            raise SnapshotNotFoundError
        return str(found)

    def _environment(self, name: str | None, isolation: IsolationMode) -> RootFilesystem | None:
        """Raises EnvironmentMissingError, also if nothing is isolated."""
        if name is None:
            return None
        if isolation == "none":
            raise EnvironmentMissingError("Environments need SANDBOX_ISOLATION=bubblewrap.")
        return self._root_filesystems.get(name)

    def _bundle(self, root: Path, ca_files: Iterable[Path], authority: str) -> str | None:
        added = [each.read_bytes() for each in ca_files]
        if authority:
            added.append(authority.encode())
        made = ca_bundle(self.folder / CERTIFICATES, root, added)
        if made is None:
            return None
        note_use(made, now=self.clock.now())
        return str(made)

    def _base_files(self, files: dict[str, str], folders: list[str], root: Path | None) -> str:
        made = make_base_files(self.folder / BASE_FILES, files, folders, root=root)
        note_use(made, now=self.clock.now())
        return str(made)


def described_secrets(secrets: MachineSecrets, options: LocalOptions) -> bytes:
    """For the egress proxy, with what else it needs. Raises SecretsTooLargeError."""
    import h11  # here, because only secrets need it

    trusted = "\n".join(each.read_text() for each in options.ca_files)
    libraries = str(Path(h11.__file__).parent.parent)
    whole = replace(secrets, trusted=trusted, libraries=libraries)
    if len(content := json.dumps(whole.described()).encode()) > MOST_BYTES:
        raise SecretsTooLargeError
    return content


def _port(environment: RootFilesystem | None) -> int:
    """The one that its image exposes, or the usual one."""
    entry = None if environment is None else environment.entry_point
    return _PORT_INSIDE if entry is None or entry.port is None else entry.port


def _variables(
    environment: RootFilesystem | None,
    isolation: IsolationMode,
    memory_bytes: int,
    *,
    has_ca: bool,
) -> dict[str, str]:
    if isolation == "none":
        return {}
    variables = machine_environment(has_ca=has_ca)
    if environment is not None:
        variables = image_environment(environment.environment, variables)
    if isolation == "bubblewrap":  # it asks the host's kernel for the memory
        variables[_JAVA] = f"-XX:MaxRAM={memory_bytes} {variables.get(_JAVA, '')}".rstrip()
    return variables
