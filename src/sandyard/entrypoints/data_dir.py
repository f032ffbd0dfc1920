"""The data dir: whose it is, and the secrets that were made for it."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import SecretStr

from sandyard.kit.errors import SandyardError
from sandyard.settings import Settings, SettingsError, tokens

_SECRETS = ("broker_api_token", "broker_admin_token")


class DataDirInUseError(SandyardError):
    """Another process serves from this data dir. Stop it first, or choose another --data-dir."""

    code = "DATA_DIR_IN_USE"


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the data dir alone; the lock goes with the process, however that ends."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataDirInUseError(
                f"Another process serves from {data_dir}. Stop it first, or choose another "
                "--data-dir."
            ) from error
        yield


def with_secrets(settings: Settings, data_dir: Path, *, may_invent: bool) -> Settings:
    """The settings with every token there: given, kept from an earlier start, or made now.

    On a shared engine nothing is invented: replicas that disagree on a token would each refuse
    the other's callers.
    """
    missing = [name for name in _SECRETS if not tokens(getattr(settings.broker, name))]
    if missing and not may_invent:
        raise SettingsError("\n".join(f"{name.upper()}: must be set" for name in missing))
    kept = {name: SecretStr(_kept_secret(secret_file(data_dir, name))) for name in missing}
    complete = replace(settings, broker=settings.broker.model_copy(update=kept))
    tracks, admins = (set(tokens(getattr(complete.broker, name))) for name in _SECRETS)
    if tracks & admins:
        raise SettingsError("BROKER_ADMIN_TOKEN: must differ from BROKER_API_TOKEN")
    return complete


def secret_file(data_dir: Path, name: str) -> Path:
    return data_dir / "secrets" / name


def _kept_secret(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists():
        draft = path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(32))
        draft.replace(path)
    return path.read_text().strip()
