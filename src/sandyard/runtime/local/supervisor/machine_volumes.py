"""The volumes of a machine, at places that its own files can't redirect."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from sandyard.runtime.local.jail.isolation import HOME, WORKSPACE, BoundVolume, Isolation, Jail
from sandyard.runtime.local.jail.user_namespaces import root_of
from sandyard.runtime.local.records.run_folder import Spec
from sandyard.runtime.local.storage.persistent_volumes import PersistentVolume

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def with_volumes(jail: Isolation, spec: Spec, folder: Path) -> Jail:
    """The jail of its processes, after its files are restored; its snapshots are packed without
    volumes. Raises VolumeBusyError, VolumeFilesMissingError, OSError."""
    if not isinstance(jail, Jail):
        raise OSError("volumes need isolated sandboxes")
    system = jail.system
    namespace = None if system is None else system.namespaces.owner
    bound: dict[str, BoundVolume] = {}
    for number, mount in enumerate(spec.mounts):
        at = folder / "volumes" / str(number)
        stored = PersistentVolume(Path(spec.volumes), mount.volume_id)
        volume = stored.bind(at, jail.mounts, namespace, writes=not mount.is_read_only)
        path = PurePosixPath(mount.path)
        home = next((each for each in (WORKSPACE, HOME) if path.is_relative_to(each)), None)
        if home is not None:
            below = path.relative_to(home)
            _make_place(jail.workspace, below.parts, jail.uid)
            bound |= {f"{each}/{below}": volume for each in (WORKSPACE, HOME)}
        else:
            if system is not None and jail.uid is not None:
                _make_place(system.mounted()["/"], path.parts[1:], root_of(jail.uid))
            bound[mount.path] = volume
    return replace(jail, volumes=bound)


def _make_place(top: Path, parts: Iterable[str], owner: int | None) -> None:
    """Its own files may have a link on the way, which could lead anywhere: OSError."""
    folder = os.open(top, _FOLDER)
    try:
        for part in parts:
            try:
                os.mkdir(part, 0o755, dir_fd=folder)
            except FileExistsError:
                pass
            else:
                if owner is not None:
                    os.chown(part, owner, owner, dir_fd=folder, follow_symlinks=False)
            inner = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = inner
    finally:
        os.close(folder)
