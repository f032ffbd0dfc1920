"""The data dir: the lock on it, and the secrets that were generated for it."""

import errno
import fcntl
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import IO, Any

from pydantic import SecretStr

from sandyard.bootstrap.registry import selected_parts
from sandyard.kit.errors import SandyardError
from sandyard.settings import Settings, SettingsError, tokens
from sandyard.wiring.spec import PartSpec


class DataDirInUseError(SandyardError):
    """Another process serves from this data dir. Stop it first, or choose another --data-dir."""


class DataDirNotWritableError(SandyardError):
    """The data dir can't be written. Mend that, or choose another --data-dir."""


class RestoreUnfinishedError(SandyardError):
    """A restore into this data dir broke off. Empty the data dir and restore again."""


_PROBE_BYTES = 64 * 1024
_LOCK_SEC = 1.5

RESTORING = "restore"
"""Contains the data being restored; removed when all of it is in place."""


def locked_if(is_embedded: object, data_dir: Path) -> AbstractContextManager[None]:
    return locked(data_dir) if is_embedded else nullcontext()


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Lock the data dir exclusively; the lock ends with the process, however that ends."""
    require_writable(data_dir)
    file = data_dir / "lock"
    file.touch(mode=0o600)
    with suppress(PermissionError):  # it is another user's
        file.chmod(0o600)  # who can read it can hold it; 0.2.0 made it readable for all
    with file.open("w") as lock:
        if not _is_locked(lock):
            raise DataDirInUseError(
                f"Another process uses {data_dir}. Stop it first, or choose another --data-dir."
            )
        if (data_dir / RESTORING).exists():
            raise RestoreUnfinishedError(
                f"A restore into {data_dir} was interrupted. Empty it and restore again."
            )
        yield


def _is_locked(lock: IO[str]) -> bool:
    """Tries for a moment: the processes of a server that was killed do not end all at once."""
    deadline = time.monotonic() + _LOCK_SEC
    while True:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)


def require_writable(data_dir: Path) -> None:
    """Create the data dir if it is missing; raise DataDirNotWritableError if it is unusable."""
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data_dir) as probe:
            probe.write(bytes(_PROBE_BYTES))
        for database in data_dir.glob("*.db"):
            if not os.access(database, os.W_OK):
                raise PermissionError(errno.EACCES, "Permission denied", str(database))
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else data_dir
        raise DataDirNotWritableError(
            f"The data dir {data_dir} can't be written ({where}: {error.strerror}). Fix that, or "
            "choose another --data-dir."
        ) from error


def with_secrets(settings: Settings, data_dir: Path) -> Settings:
    """The settings with every secret set: given, stored at an earlier start, or generated now.

    On a shared engine none is generated: replicas with different tokens would refuse each other's
    callers.
    """
    mistakes: list[str] = []
    for part in selected_parts(settings):
        missing = [secret for secret in part.secrets if not _tokens(settings, part, secret)]
        if part.is_embedded(settings):
            settings = _with_stored_secrets(settings, part, missing, data_dir)
        else:
            mistakes += [f"{secret.upper()}: must be set" for secret in missing]
    mistakes += _shared_tokens(settings)
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings


def _with_stored_secrets(
    settings: Settings, part: PartSpec, missing: Sequence[str], data_dir: Path
) -> Settings:
    stored = {
        secret: SecretStr(_stored_secret(secret_file(data_dir, secret))) for secret in missing
    }
    section = part.own_settings(settings)
    changed: dict[str, Any] = {part.settings[0]: section.model_copy(update=stored)}
    return replace(settings, **changed)


def secret_tokens(settings: Settings, setting: str) -> tuple[str, ...]:
    return next(
        _tokens(settings, part, setting)
        for part in selected_parts(settings)
        if setting in part.secrets
    )


def _tokens(settings: Settings, part: PartSpec, secret: str) -> tuple[str, ...]:
    return tokens(getattr(part.own_settings(settings), secret))


def _shared_tokens(settings: Settings) -> Iterator[str]:
    """A line for each secret that shares a token with another."""
    given = [
        (secret.upper(), set(_tokens(settings, part, secret)))
        for part in selected_parts(settings)
        for secret in part.secrets
    ]
    for (first, ours), (second, theirs) in combinations(given, 2):
        if ours & theirs:
            yield f"{second}: must differ from {first}"


def secret_file(data_dir: Path, name: str) -> Path:
    return data_dir / "secrets" / name


def _stored_secret(path: Path) -> str:
    """Generated at the first start."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        draft = path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
        draft.replace(path)
    return path.read_text().strip()
