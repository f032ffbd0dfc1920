"""Profiles: named servers and credentials, in a file that only its owner can read."""

import os
import stat
from collections.abc import Mapping
from configparser import ConfigParser, Error
from contextlib import suppress
from pathlib import Path

from sandyard_client.errors import ConfigurationError

DEFAULT = "default"


def config_file() -> Path:
    """`SANDYARD_CONFIG`, or `sandyard/config` in the user's configuration folder."""
    if named := os.environ.get("SANDYARD_CONFIG"):
        return Path(named)
    folder = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(folder).expanduser() / "sandyard" / "config"


def profile_name(given: str | None) -> str:
    return given or os.environ.get("SANDYARD_PROFILE") or DEFAULT


def read_profile(name: str | None = None) -> dict[str, str]:
    """Its values. A profile requested by name must exist; the default one need not."""
    chosen = profile_name(name)
    found = _read(config_file())
    if chosen in found:
        return dict(found[chosen])
    if chosen != DEFAULT:
        raise ConfigurationError(f"There is no profile {chosen} in {config_file()}.")
    return {}


def list_profiles() -> list[str]:
    return _read(config_file()).sections()


def write_profile(name: str, values: Mapping[str, str]) -> Path:
    """Add these values to the profile. The file is replaced as a whole, with mode 0600."""
    path = config_file()
    known = _read(path)
    if not known.has_section(name):
        known.add_section(name)
    for key, value in values.items():
        known.set(name, key, value)
    _replace(path, known)
    return path


def remove_profile(name: str) -> bool:
    """False if it did not exist."""
    path = config_file()
    known = _read(path)
    if not known.remove_section(name):
        return False
    _replace(path, known)
    return True


def _read(path: Path) -> ConfigParser:
    known = ConfigParser(interpolation=None, default_section="")
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ConfigurationError(f"{path} can be read by others: chmod 600 {path}")
        known.read_string(path.read_text())
    except FileNotFoundError:
        pass
    except (Error, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is malformed: {error}") from error
    return known


def _replace(path: Path, known: ConfigParser) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            known.write(file)
        draft.replace(path)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()
