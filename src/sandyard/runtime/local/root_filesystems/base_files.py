"""Files outside /usr for machines with their own root, created once for all."""

import json
import os
import secrets
import shutil
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from sandyard.runtime.local.jail.bubblewrap import MADE_FILES, SYSTEM_FILES, SYSTEM_LINKS
from sandyard.runtime.local.root_filesystems.users import accounts
from sandyard.runtime.records.run_folder import remove_folder

_FOLDERS = (
    *("dev", "etc", "home/user", "media", "mnt", "opt/kernels", "proc", "root", "run/sandyard"),
    *("srv", "sys", "tmp", "usr", "workspace", "var/cache/apt/archives/partial", "var/lib/apt"),
    *("var/lib/dpkg", "var/log", "var/spool", "var/tmp"),
)
_IN_MEMORY = ("/run/", "/tmp/")  # noqa: S108 - inside


def make_base_files(
    folder: Path, files: Mapping[str, str], folders: Iterable[str], *, root: Path | None = None
) -> Path:
    """A folder below `folder`, for machines with this root file system; with None, it has the files
    that programs of the host's /usr need outside it. In-memory files are not in it."""
    whole = {**MADE_FILES, **files, **accounts(root)}
    content = {path: text for path, text in whole.items() if not path.startswith(_IN_MEMORY)}
    of_this_machine = root is None
    places = [path for path in folders if not path.startswith(_IN_MEMORY)]
    copied = [Path(each) for each in SYSTEM_FILES if os.path.lexists(each)]
    changes = [[str(each), _changed_at(each)] for each in copied]
    identity = [content, places, of_this_machine, changes]
    made = folder / sha256(json.dumps(identity).encode()).hexdigest()[:16]
    if not made.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = folder / f".{secrets.token_hex(8)}"
        try:
            _fill(draft, content, (*_FOLDERS, *places))
            if of_this_machine:
                _add_own(draft, copied)
            draft.rename(made)
        except OSError:
            if not made.exists():  # otherwise another was as fast
                raise
        finally:
            remove_folder(draft)
    return made


def _changed_at(path: Path) -> float:
    return path.lstat().st_mtime


def _fill(root: Path, files: Mapping[str, str], folders: Iterable[str]) -> None:
    for path in folders:
        _below(root, path).mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        file = _below(root, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o644)
    for folder, *_ in os.walk(root):
        Path(folder).chmod(0o755)
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)


def _add_own(root: Path, copied: Iterable[Path]) -> None:
    for source in copied:
        target = _below(root, str(source))
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            _copy_folder(source, target)
        else:
            shutil.copy(source, target)
    for name in SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            (root / name).symlink_to(str(path.readlink()).removeprefix("/"))


def _copy_folder(source: Path, target: Path) -> None:
    """Hundreds of entries, mostly links: `shutil.copytree` takes ten times as long."""
    target.mkdir(exist_ok=True)
    target.chmod(0o755)
    with os.scandir(source) as entries:
        for entry in entries:
            to = target / entry.name
            if entry.is_symlink():
                to.symlink_to(Path(entry.path).readlink())
            elif entry.is_dir():
                _copy_folder(Path(entry.path), to)
            elif entry.is_file():
                shutil.copy(entry.path, to)


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")
