"""The templates that ship with the product."""

from pathlib import Path

from sandyard.runtime.errors import InvalidRepositoryError
from sandyard.runtime.repositories.git import BUILTIN

_SOURCES = Path(__file__).parents[1] / "templates"


def builtin_names() -> list[str]:
    return sorted(path.name for path in _SOURCES.iterdir() if path.is_dir())


def builtin_files(url: str) -> dict[str, bytes]:
    """The files of `builtin:<name>`."""
    source = _source(url)
    return {path.relative_to(source).as_posix(): path.read_bytes() for path in _files(source)}


def is_bare(url: str) -> bool:
    """Whether this is a built-in template without a program: its machine waits for commands."""
    return url.startswith(BUILTIN) and not (_source(url) / "Procfile").exists()


def _source(url: str) -> Path:
    name = url.removeprefix(BUILTIN)
    if name not in builtin_names():
        known = ", ".join(BUILTIN + known for known in builtin_names())
        raise InvalidRepositoryError(f"There is no such built-in template. Known: {known}.")
    return _SOURCES / name


def _files(source: Path) -> list[Path]:
    files = (path for path in source.rglob("*") if path.is_file())
    return sorted(path for path in files if "__pycache__" not in path.parts)
