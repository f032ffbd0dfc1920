"""Settings, read once from the environment and passed in; nothing here is a module-level instance.

Each section is frozen and belongs to one part. `describe` lists every variable.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Any, cast, get_type_hints

from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsError as UnreadableSource

from sandyard.kit.errors import SandyardError
from sandyard.kit.patterns import in_words
from sandyard.kit.rotation import Secret
from sandyard.settings.broker import BrokerSettings, OAuthSettings, ProviderSettings
from sandyard.settings.delivery import DeliverySettings
from sandyard.settings.fields import Section, tokens
from sandyard.settings.platform import PlatformSettings, SandboxSettings
from sandyard.settings.previews import PreviewSettings
from sandyard.settings.references import references
from sandyard.settings.secrets import Secrets
from sandyard.settings.server import ServerSettings
from sandyard.settings.services import DynamoSettings, E2bSettings, KubernetesSettings, OtelSettings
from sandyard.settings.telemetry import TelemetrySettings

__all__ = [
    "BrokerSettings",
    "DeliverySettings",
    "DynamoSettings",
    "E2bSettings",
    "KubernetesSettings",
    "OAuthSettings",
    "OtelSettings",
    "PlatformSettings",
    "PreviewSettings",
    "ProviderSettings",
    "SandboxSettings",
    "Section",
    "ServerSettings",
    "Settings",
    "SettingsError",
    "TelemetrySettings",
    "at_database",
    "close_variables",
    "describe",
    "list_in_force",
    "load_settings",
    "tokens",
]

_CLOSE = 0.88
_OF_LIBRARIES = ("AWS_", "OTEL_", "SANDYARD_")
"""Prefixes of variables that others read."""


class SettingsError(SandyardError):
    """A setting is wrong; each line of the message names a variable."""

    code = "INVALID_SETTINGS"


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings
    broker: BrokerSettings
    provider: ProviderSettings
    oauth: OAuthSettings
    delivery: DeliverySettings
    dynamo: DynamoSettings
    telemetry: TelemetrySettings
    platform: PlatformSettings
    sandboxes: SandboxSettings
    previews: PreviewSettings
    e2b: E2bSettings
    kubernetes: KubernetesSettings
    otel: OtelSettings
    secrets: Secrets

    def secret(self, setting: str) -> Secret:
        """The currently valid values of this secret, also after rotation."""
        section: Section = getattr(self, _section_of(setting))
        return self.secrets.of(setting, getattr(section, setting))

    def only(self, *parts: str) -> "Settings":
        """The same, for a process that runs only these parts."""
        return replace(self, server=self.server.model_copy(update={"parts": ",".join(parts)}))


def load_settings() -> Settings:
    """All sections from the environment, or one SettingsError with a line per mistake."""
    mistakes: list[str] = []
    sections: dict[str, Section] = {}
    for name, section in _sections().items():
        try:
            sections[name] = section()
        except ValidationError as error:
            mistakes.extend(_lines(error))
        except UnreadableSource as error:
            mistakes.append(str(error.__cause__))
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    server = cast("ServerSettings", sections["server"])
    secrets = Secrets(
        references(),
        _validate,
        refresh_sec=server.secrets_refresh_sec,
        overlap_sec=server.secrets_overlap_sec,
    )
    return Settings(**sections, secrets=secrets)  # type: ignore[arg-type]


def at_database(settings: Settings, url: str) -> Settings:
    """The same with another DATABASE_URL, which has its password in it."""
    server = settings.server.model_copy(
        update={"database_url": SecretStr(url), "database_password": None}
    )
    secrets = Secrets(
        {},
        _validate,
        refresh_sec=server.secrets_refresh_sec,
        overlap_sec=server.secrets_overlap_sec,
    )
    return replace(settings, server=server, secrets=secrets)


def describe() -> Iterator[tuple[str, str]]:
    """Variable and default of every setting."""
    for section in _sections().values():
        for name, field in section.model_fields.items():
            yield name.upper(), "" if field.default is None else str(field.default)


def list_in_force(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    """Every variable, its value, and where it comes from: the environment, a reference in it, or
    the default."""
    pointers = references()
    for part in _sections():
        section: Section = getattr(settings, part)
        for name in type(section).model_fields:
            is_set = name in section.model_fields_set
            source = pointers.get(name, "environment") if is_set else "default"
            yield name.upper(), getattr(section, name), source


def close_variables(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables that are not settings but closely resemble one, each with that setting."""
    known = [name for name, _ in describe()]
    for name in sorted(environment.keys() - set(known)):
        if not name.startswith(_OF_LIBRARIES):
            yield from ((name, each) for each in get_close_matches(name, known, 1, _CLOSE))


def _sections() -> dict[str, type[Section]]:
    hints = get_type_hints(Settings).items()
    return {name: section for name, section in hints if issubclass(section, Section)}


@cache
def _section_of(setting: str) -> str:
    return next(name for name, section in _sections().items() if setting in section.model_fields)


def _validate(setting: str, text: str) -> SecretStr | None:
    section = _sections()[_section_of(setting)].of({setting: text})
    value: SecretStr | None = getattr(section, setting)
    return value


def _lines(error: ValidationError) -> Iterator[str]:
    for mistake in error.errors(include_input=False, include_url=False):
        where: Any = mistake["loc"][0] if mistake["loc"] else "settings"
        yield f"{str(where).upper()}: {in_words(mistake)}"
