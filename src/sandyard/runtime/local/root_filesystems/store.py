"""Root file systems of this node, read-only and shared by machines: environments, which an operator
imported, and images of accounts, which are unpacked when they are first used."""

import fcntl
import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sandyard.runtime.errors import EnvironmentInUseError, EnvironmentMissingError
from sandyard.runtime.images.archives import ImageFiles, opened, read_archive
from sandyard.runtime.images.errors import ImageRefusedError
from sandyard.runtime.images.model import IMAGE_ID, config_of
from sandyard.runtime.images.unpacking import MOST_BYTES, Unpacker, parts_of, remove
from sandyard.runtime.local.jail.isolation import MADE_FILES
from sandyard.runtime.local.records.run_folder import specs_in_use
from sandyard.runtime.local.root_filesystems.base_files import find_user
from sandyard.runtime.local.root_filesystems.settings import SETTING_FILES
from sandyard.runtime.model import EntryPoint
from sandyard.runtime.records.run_folder import entries, remove_folder, sync_folder, write_record

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_RECORD = ".json"
_DRAFT = "draft-"
_GONE = "draft-0-"
_FOLDERS = ("proc", "dev", "tmp", "run", "workspace", "home", "home/user", "opt", "opt/kernels")
_SHELL = "bin/sh"
_ROOT = "root"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True)
class RootFilesystem:
    name: str
    root: str
    """The name of its folder: the same for the same content, here and on other nodes."""
    size_bytes: int
    created_at: float
    environment: Mapping[str, str] = field(default_factory=dict)
    """Default variables of its processes."""
    entry: Mapping[str, Any] | None = None
    """What its image runs, an `EntryPoint`."""

    @property
    def is_image(self) -> bool:
        """Of an account."""
        return IMAGE_ID.fullmatch(self.name) is not None

    @property
    def entry_point(self) -> EntryPoint | None:
        return None if self.entry is None else EntryPoint(**self.entry)


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
            record = json.loads((self._folder / (name + _RECORD)).read_bytes())
        except FileNotFoundError:
            return None
        record.pop("digest", None)  # of earlier releases
        return RootFilesystem(**record)

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
        Raises ImageRefusedError."""
        if not _NAME.fullmatch(name) or IMAGE_ID.fullmatch(name):
            raise ImageRefusedError(
                "An environment's name may have lower-case letters, digits, dots and dashes, and "
                "not be an image's id."
            )
        with self._draft() as draft:
            (scratch := draft / "image").mkdir()
            image = read_archive(source, scratch, most_bytes=MOST_BYTES)
            root = _digest(source) if image is None else image.manifest.identity
            new = RootFilesystem(name, root, 0, now)
            return self._add(new, Unpacker(draft / _ROOT), image, source)

    def add_image(
        self,
        image_id: str,
        image: ImageFiles,
        *,
        now: float,
        most_bytes: int,
        require_space: Callable[[], None],
    ) -> RootFilesystem:
        """Unpack an account's image, unless another one of the same parts is here. Raises
        ImageRefusedError, and the errors of `require_space`."""
        new = RootFilesystem(image_id, image.manifest.identity, 0, now)
        with self._draft() as draft:
            unpacker = Unpacker(draft / _ROOT, most_bytes=most_bytes, require_space=require_space)
            return self._add(new, unpacker, image)

    def _add(
        self,
        new: RootFilesystem,
        unpacker: Unpacker,
        image: ImageFiles | None,
        plain: Path | None = None,
    ) -> RootFilesystem:
        """The layers of an image, or a plain tar of a root file system."""
        if self._find_same(new) is None:
            new = self._unpack(new, unpacker, image, plain)
        return self._keep(new, unpacker.root)

    def _find_same(self, new: RootFilesystem) -> RootFilesystem | None:
        return next((each for each in self.list() if each.root == new.root), None)

    def _unpack(
        self,
        new: RootFilesystem,
        unpacker: Unpacker,
        image: ImageFiles | None,
        plain: Path | None,
    ) -> RootFilesystem:
        root = unpacker.root
        root.mkdir()
        for layer in image.layers if image is not None else filter(None, [plain]):
            with opened(layer) as content:
                unpacker.unpack(content)
        config = config_of({} if image is None else image.config())
        if image is None and not os.path.lexists(root / _SHELL):
            raise ImageRefusedError(f"It is not a root file system: it has no /{_SHELL}.")
        user, group, home = find_user(root, config.user)
        folder = unpacker.folder_at(parts_of(config.folder))
        port = next(iter(config.ports), None)
        entry = EntryPoint(config.command, f"/{folder.relative_to(root)}", user, group, home, port)
        _prepare(root)
        return replace(
            new,
            size_bytes=_size_bytes(root),
            environment=config.variables,
            entry=asdict(entry) if config.command else None,
        )

    def _keep(self, made: RootFilesystem, unpacked: Path) -> RootFilesystem:
        os.sync()
        with self._locked():
            if (same := self._find_same(made)) is not None:
                made = replace(same, name=made.name, created_at=made.created_at)
            elif not unpacked.exists():
                raise EnvironmentMissingError  # removed meanwhile
            elif not self.root_of(made).exists():  # else a machine still uses it
                unpacked.rename(self.root_of(made))
                sync_folder(self._roots)
            write_record(self._folder / (made.name + _RECORD), asdict(made))
            self._remove_unused()
        return made

    def remove(self, name: str) -> None:
        """Raises EnvironmentMissingError, EnvironmentInUseError."""
        environment = self.get(name)
        if environment.root in self._roots_in_use():
            raise EnvironmentInUseError
        self._drop(name)

    def note_use(self, name: str) -> None:
        os.utime(self._folder / (name + _RECORD))

    def remove_images(self, wanted: Collection[str], *, unused_since: float) -> None:
        """Images that are not wanted, or have not been used since then; never what a machine
        uses."""
        in_use = self._roots_in_use()
        for each in self.list():
            used_at = (self._folder / (each.name + _RECORD)).stat().st_mtime
            is_needed = each.name in wanted and used_at >= unused_since
            if each.is_image and not is_needed and each.root not in in_use:
                self._drop(each.name)

    def _drop(self, name: str) -> None:
        with self._locked():
            (self._folder / (name + _RECORD)).unlink()
            sync_folder(self._folder)
            self._remove_unused()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes other processes: a root without a record is removed."""
        with (self._folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        self._roots.mkdir(parents=True, exist_ok=True)
        self._folder.chmod(0o700)  # files have owners that may also be users of the host
        draft = self._roots / f"{_DRAFT}{os.getpid()}-{secrets.token_hex(4)}"
        draft.mkdir(mode=0o700)
        try:
            yield draft
        finally:
            remove_folder(draft)

    def _remove_unused(self) -> None:
        """Remove roots that no environment or machine uses, and remains of failed imports. A root
        is renamed first, so that it is never there in part."""
        in_use = {each.root for each in self.list()} | self._roots_in_use()
        for path in entries(self._roots):
            is_draft = path.name.startswith(_DRAFT)
            if path.name not in in_use and not (is_draft and _is_being_made(path)):
                gone = self._roots / f"{_GONE}{secrets.token_hex(4)}"
                remove_folder(path.rename(gone))

    def _roots_in_use(self) -> set[str]:
        specs = specs_in_use(self._runtime_folder)
        return {Path(spec.root).name for spec in specs if spec.root}


def _digest(source: Path) -> str:
    with source.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is_being_made(draft: Path) -> bool:
    pid = draft.name.removeprefix(_DRAFT).partition("-")[0]
    return Path("/proc", pid).exists()


def _prepare(root: Path) -> None:
    """Make the mount points of a machine's own folders and files."""
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
    if path.is_symlink() or not path.is_dir():
        remove(path)
        path.mkdir(mode=0o755)


def _size_bytes(root: Path) -> int:
    return sum(
        Path(folder, name).lstat().st_size for folder, _, names in os.walk(root) for name in names
    )
