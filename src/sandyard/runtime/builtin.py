"""The templates that ship with the product, as git repositories made at first use."""

import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path

from sandyard.runtime.errors import InvalidRepositoryError
from sandyard.runtime.repositories import BUILTIN

_SOURCES = Path(__file__).parent / "templates"
_AUTHOR = {
    "GIT_AUTHOR_NAME": "Sandyard",
    "GIT_AUTHOR_EMAIL": "templates@sandyard.invalid",
    "GIT_AUTHOR_DATE": "2025-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "Sandyard",
    "GIT_COMMITTER_EMAIL": "templates@sandyard.invalid",
    "GIT_COMMITTER_DATE": "2025-01-01T00:00:00Z",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}


def builtin_names() -> list[str]:
    return sorted(path.name for path in _SOURCES.iterdir() if path.is_dir())


def builtin_repository(url: str, *, folder: Path) -> Path:
    """The repository of `builtin:<name>`, made now if it is not there or its files changed."""
    source = _source(url)
    repository = folder / f"{source.name}-{_digest(source)}.git"
    if not repository.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _make(source, repository)
    return repository


def builtin_files(url: str) -> dict[str, bytes]:
    """The files of `builtin:<name>`, for where there is nothing to clone from."""
    source = _source(url)
    return {path.relative_to(source).as_posix(): path.read_bytes() for path in _files(source)}


def is_bare(url: str) -> bool:
    """Whether this is a built-in template without a program: its machine waits for commands."""
    return url.startswith(BUILTIN) and not (_source(url) / "Procfile").exists()


def _source(url: str) -> Path:
    name = url.removeprefix(BUILTIN)
    if name not in builtin_names():
        known = ", ".join(BUILTIN + known for known in builtin_names())
        raise InvalidRepositoryError(f"There is no such built-in template. There are: {known}.")
    return _SOURCES / name


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in _files(source):
        digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _make(source: Path, repository: Path) -> None:
    with tempfile.TemporaryDirectory(dir=repository.parent) as draft_folder:
        draft = Path(draft_folder) / "draft"
        for path in _files(source):
            target = draft / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
        _git(draft, "init", "--quiet", "--initial-branch=main", "--template=")
        _git(draft, "add", "--all")
        _git(draft, "commit", "--quiet", "--message", "A first version")
        _git(draft, "update-server-info")
        (draft / ".git").chmod(0o755)
        try:
            (draft / ".git").rename(repository)
        except OSError:  # another process was faster, with the same content
            if not repository.exists():
                raise


def _files(source: Path) -> list[Path]:
    files = (path for path in source.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)


def _git(folder: Path, *arguments: str) -> None:
    subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=folder,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/", **_AUTHOR},
        check=True,
        capture_output=True,
    )
