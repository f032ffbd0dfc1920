"""Root file systems that an operator imported, read-only and shared by machines."""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from sandyard.runtime.errors import (
    EnvironmentInUseError,
    EnvironmentMissingError,
    EnvironmentRefusedError,
)
from sandyard.runtime.local.jail.isolation import MADE_FILES
from sandyard.runtime.local.records.run_folder import specs_in_use
from sandyard.runtime.local.root_filesystems.oci_images import remove, unpack_image
from sandyard.runtime.local.root_filesystems.settings import SETTING_FILES
from sandyard.runtime.records.run_folder import entries, remove_folder, sync_folder, write_record

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_RECORD = ".json"
_DRAFT = "draft-"
_FOLDERS = ("proc", "dev", "tmp", "run", "workspace", "home", "home/user", "opt", "opt/kernels")
_SHELL = "bin/sh"


@dataclass(frozen=True, slots=True)
class RootFilesystem:
    name: str
    root: str
    """The name of its folder."""
    size_bytes: int
    created_at: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """Default variables of its processes."""


class RootFilesystems:
    """Stored in a folder of the runtime. Each is complete or absent."""

    def __init__(self, runtime_folder: Path) -> None:
        self._runtime_folder = runtime_folder.absolute()
        self._folder = self._runtime_folder / "environments"
        self._roots = self._folder / "roots"

    def find(self, name: str) -> RootFilesystem | None:
        if not _NAME.fullmatch(name):
            return None
        try:
            return RootFilesystem(**json.loads((self._folder / (name + _RECORD)).read_bytes()))
        except FileNotFoundError:
            return None

    def get(self, name: str) -> RootFilesystem:
        """Raises EnvironmentMissingError."""
        if (found := self.find(name)) is None:
            raise EnvironmentMissingError(f"There is no environment {name!r} here. Import it.")
        return found

    def list(self) -> Sequence[RootFilesystem]:
        names = [path.name for path in entries(self._folder) if path.name.endswith(_RECORD)]
        found = (self.find(name.removesuffix(_RECORD)) for name in names)
        return [each for each in found if each is not None]

    def root_of(self, environment: RootFilesystem) -> Path:
        return self._roots / environment.root

    def add(self, name: str, source: Path, *, now: float) -> RootFilesystem:
        """Import an environment; it replaces one of the same name for machines started from now on.
        Raises EnvironmentRefusedError."""
        if not _NAME.fullmatch(name):
            raise EnvironmentRefusedError(
                "An environment's name may have lower-case letters, digits, dots and dashes."
            )
        with self._draft() as draft:
            root = draft / "root"
            root.mkdir()
            environment = unpack_image(source, root)
            _prepare(root)
            made = RootFilesystem(name, secrets.token_hex(8), _size_bytes(root), now, environment)
            os.sync()
            root.rename(self.root_of(made))
        sync_folder(self._roots)
        write_record(self._folder / (name + _RECORD), asdict(made))
        self._remove_unused()
        return made

    def remove(self, name: str) -> None:
        """Raises EnvironmentMissingError, EnvironmentInUseError."""
        environment = self.get(name)
        if environment.root in self._roots_in_use():
            raise EnvironmentInUseError
        (self._folder / (name + _RECORD)).unlink()
        sync_folder(self._folder)
        self._remove_unused()

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        self._roots.mkdir(parents=True, exist_ok=True)
        draft = self._roots / f"{_DRAFT}{os.getpid()}-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        try:
            yield draft
        finally:
            remove_folder(draft)

    def _remove_unused(self) -> None:
        """Remove roots that no environment or machine uses, and remains of failed imports."""
        in_use = {each.root for each in self.list()} | self._roots_in_use()
        for path in entries(self._roots):
            is_draft = path.name.startswith(_DRAFT)
            if path.name not in in_use and not (is_draft and _is_being_made(path)):
                remove_folder(path)

    def _roots_in_use(self) -> set[str]:
        specs = specs_in_use(self._runtime_folder)
        return {Path(spec.root).name for spec in specs if spec.root}


def _is_being_made(draft: Path) -> bool:
    pid = draft.name.removeprefix(_DRAFT).partition("-")[0]
    return Path("/proc", pid).exists()


def _prepare(root: Path) -> None:
    """Make the mount points of a machine's own folders and files."""
    if not os.path.lexists(root / _SHELL):
        raise EnvironmentRefusedError(f"It is not a root file system: it has no /{_SHELL}.")
    root.chmod(0o755)
    for name in _FOLDERS:
        _make_folder(root / name)
    for path in (*MADE_FILES, *SETTING_FILES):
        file = root / path.lstrip("/")
        for parent in reversed(file.relative_to(root).parents[:-1]):
            _make_folder(root / parent)
        if file.is_symlink() or not file.is_file():
            remove(file)
            file.touch(mode=0o644)


def _make_folder(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    path.mkdir(mode=0o755, exist_ok=True)


def _size_bytes(root: Path) -> int:
    return sum(
        Path(folder, name).lstat().st_size for folder, _, names in os.walk(root) for name in names
    )
