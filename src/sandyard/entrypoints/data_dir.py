"""The data dir: whose it is, and the secrets that were made for it."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from pydantic import SecretStr

from sandyard.bootstrap.engines import is_embedded
from sandyard.kit.errors import SandyardError
from sandyard.settings import Settings, SettingsError, tokens

_SECRETS = {
    "broker": ("broker_api_token", "broker_admin_token"),
    "telemetry": ("telemetry_admin_token", "api_key_pepper"),
    "platform": ("jwt_secret",),
    "previews": (),
}
"""The secrets of each part, under the names that they have in its section of the settings."""


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


def with_secrets(settings: Settings, data_dir: Path) -> Settings:
    """The settings with every secret there: given, kept from an earlier start, or made now.

    On a shared engine nothing is invented: replicas that disagree on a token would each refuse
    the other's callers.
    """
    mistakes: list[str] = []
    for part in settings.server.part_names:
        section = getattr(settings, part)
        missing = [name for name in _SECRETS[part] if not tokens(getattr(section, name))]
        if missing and not is_embedded(settings, part):
            mistakes += [f"{name.upper()}: must be set" for name in missing]
            continue
        kept = {name: SecretStr(_kept_secret(secret_file(data_dir, name))) for name in missing}
        settings = replace(settings, **{part: section.model_copy(update=kept)})
    mistakes += _shared_tokens(settings)
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings


def _shared_tokens(settings: Settings) -> Iterator[str]:
    """A line for each door that another door's token would open too."""
    doors = [
        (name, set(tokens(getattr(getattr(settings, part), name))))
        for part in settings.server.part_names
        for name in _SECRETS[part]
    ]
    for (first, ours), (second, theirs) in combinations(doors, 2):
        if ours & theirs:
            yield f"{second.upper()}: must differ from {first.upper()}"


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
