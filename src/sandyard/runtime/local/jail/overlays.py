"""The system of a machine with its own root: everything outside its workspace, with its changes.

Each folder is an overlay: the lower layer, read-only, is shared by all machines; the upper one, in
the machine's own file system and so within its limit, has its changes. Ids are shifted, so that
root's files below are root's inside.
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandyard.runtime.local.jail.mount_namespace import MountNamespace
from sandyard.runtime.local.jail.native_programs import SUDO
from sandyard.runtime.local.jail.user_namespaces import UserNamespaces, root_of

ARCHIVED = ".sandyard-system"
"""Its name in the archive of a workspace."""
_UPPER, _WORK = "upper", "work"
HOST_PACKAGES = "/var/lib/dpkg"
_SUDO = Path("bin/sudo")
_MOUNTED = ("/dev", "/proc", "/run/sandyard", "/tmp")  # noqa: S108 - inside


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder inside: the name of its changes, and the folders below them, topmost first."""

    name: str
    mount_point: str
    below: Sequence[Path]


def layers_of(base_files: Path, root: Path | None) -> Sequence[Layer]:
    """The layers of a root file system; None is the host's /usr, with the list of its packages."""
    if root is not None:
        return [Layer("root", "/", (base_files, root))]
    own = [Layer("root", "/", (base_files,)), Layer("usr", "/usr", (Path("/usr"),))]
    if Path(HOST_PACKAGES).is_dir():
        own.append(Layer("packages", HOST_PACKAGES, (Path(HOST_PACKAGES),)))
    return own


class System:
    def __init__(
        self,
        folder: Path,
        layers: Sequence[Layer],
        mounts: MountNamespace,
        *,
        uid: int,
        namespaces: UserNamespaces,
    ) -> None:
        self.folder = folder
        self.namespaces = namespaces
        self._layers = layers
        self._mounts = mounts
        self._root = root_of(uid)
        self._mounted: Mapping[str, Path] = {}

    def prepare(self) -> None:
        """Make the folders for its changes, in a file system made for it."""
        made = [Path(layer.name, name) for layer in self._layers for name in ("", _UPPER, _WORK)]
        for path in (self.folder, *(self.folder / each for each in made)):
            path.mkdir(exist_ok=True, mode=0o755)
            os.chown(path, self._root, self._root)
        self._link_sudo()

    def mounted(self) -> Mapping[str, Path]:
        """Mount its folders, once; returns where each is, by its path inside. Raises OSError."""
        if self._mounted:
            return self._mounted
        self._refuse_links()
        owner = self.namespaces.owner
        self._mounted = {
            layer.mount_point: self._mounts.overlay(
                [self._mounts.shifted(each, owner) for each in layer.below],
                upper=self.folder / layer.name / _UPPER,
                work=self.folder / layer.name / _WORK,
            )
            for layer in self._layers
        }
        return self._mounted

    def try_out(self) -> None:
        """Mount all of it and unmount it again. Raises OSError."""
        self.prepare()
        for path in self.mounted().values():
            self._mounts.unmount(path)

    def _refuse_links(self) -> None:
        """Root does the mounting, and a snapshot may contain anything: a link in place of a folder
        would lead out of the sandbox."""
        places = [Path(layer.name, name) for layer in self._layers for name in (_UPPER, _WORK)]
        mounted = (*_MOUNTED, *(layer.mount_point for layer in self._layers))
        places += [Path(self._layers[0].name, _UPPER, path.lstrip("/")) for path in mounted]
        for part in {part for place in places for part in (place, *place.parents)}:
            if (self.folder / part).is_symlink():
                raise OSError(errno.ELOOP, f"the folder {part} is a link")

    def _link_sudo(self) -> None:
        layer = self._layers[-1] if len(self._layers) == 1 else self._layers[1]
        folder = self.folder / layer.name / _UPPER
        path = folder / (_SUDO if layer.mount_point == "/usr" else "usr" / _SUDO)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        if not path.is_symlink():
            path.symlink_to(SUDO)
        for each in (path, *path.relative_to(folder).parents):
            os.chown(folder / each, self._root, self._root, follow_symlinks=False)
