"""Settings whose value is a reference: `file:PATH` or `aws-secretsmanager:NAME[#key]`."""

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource

FILE, SECRETS_MANAGER = "file:", "aws-secretsmanager:"
_UNREADABLE = (OSError, ValueError, LookupError)
_CONNECT_SEC, _READ_SEC = 3, 10
_making_client = threading.Lock()


class UnreadableSettingError(Exception):
    """A reference leads to nothing; the message names the variable, never the value."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """A secret as stored."""

    text: str
    previous: str | None = None
    """The previous value, if the store has it."""
    changed_at: float | None = None


class ReferencedEnvironment(EnvSettingsSource):
    """The environment's variables, with references resolved."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        value, key, is_complex = super().get_field_value(field, field_name)
        if isinstance(value, str):
            value = read(field_name, value).text
        return value, key, is_complex


def references() -> Mapping[str, str]:
    """The settings whose value is a reference, and their references."""
    return {name.lower(): value for name, value in os.environ.items() if _is_reference(name, value)}


def read(setting: str, value: str, *, with_previous: bool = False) -> StoredSecret:
    """The value of the setting, with a reference resolved. UnreadableSettingError if it can't be
    read."""
    if not _is_reference(setting, value):
        return StoredSecret(value)
    try:
        if value.startswith(FILE):
            return StoredSecret(Path(value.removeprefix(FILE)).read_text().strip())
        name, _, key = value.removeprefix(SECRETS_MANAGER).partition("#")
        return _secret(name, key, with_previous=with_previous)
    except _UNREADABLE as error:
        raise UnreadableSettingError(f"{setting.upper()}: {_why(error)}") from error


def _is_reference(setting: str, value: str) -> bool:
    """The address of a store may be a folder, which is no reference."""
    is_address = setting.upper() == "SNAPSHOT_STORE" and value.startswith(FILE)
    return value.startswith((FILE, SECRETS_MANAGER)) and not is_address


def _secret(name: str, key: str, *, with_previous: bool) -> StoredSecret:
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError as error:
        raise ValueError("AWS secrets need sandyard[aws]") from error
    try:
        with _making_client:  # threads may share a client, but not create one concurrently
            aws = (each for each in os.environ.items() if each[0].startswith("AWS_"))
            client = _client(tuple(sorted(aws)))
        current = client.get_secret_value(SecretId=name)
        previous = _previous(client, name) if with_previous else None
    except (BotoCoreError, ClientError) as error:
        raise ValueError(f"the secret {name} can't be read: {error}") from error
    return StoredSecret(
        _text(current, name, key),
        None if previous is None else _text(previous, name, key),
        current["CreatedDate"].timestamp(),
    )


@lru_cache(maxsize=1)
def _client(_environment: tuple[tuple[str, str], ...]) -> Any:
    import boto3
    from botocore.config import Config

    brief = Config(
        connect_timeout=_CONNECT_SEC,
        read_timeout=_READ_SEC,
        retries={"mode": "standard", "max_attempts": 2},
    )
    return boto3.Session().client("secretsmanager", config=brief)


def _previous(client: Any, name: str) -> Any | None:
    try:
        return client.get_secret_value(SecretId=name, VersionStage="AWSPREVIOUS")
    except client.exceptions.ResourceNotFoundException:
        return None


def _text(answer: Mapping[str, Any], name: str, key: str) -> str:
    if "SecretString" not in answer:
        raise ValueError(f"the secret {name} is binary; it must be text")
    text: str = answer["SecretString"]
    if not key:
        return text
    fields = json.loads(text)
    if not isinstance(fields, dict) or key not in fields:
        raise LookupError(f"the secret {name} has no key {key}")
    return str(fields[key])


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "its value is not text"
    if isinstance(error, OSError):
        return f"{error.filename} can't be read: {error.strerror}"
    if isinstance(error, json.JSONDecodeError):
        return "the secret is not JSON, so it has no keys"
    return str(error.args[0])
