"""Settings, read once from the environment and passed in; nothing here is a module-level instance.

Each section is frozen and belongs to one part. `describe` lists every variable for the docs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
from sandyard.settings.otel import OtelSettings
from sandyard.settings.platform import PlatformSettings, SandboxSettings
from sandyard.settings.previews import PreviewSettings
from sandyard.settings.references import references
from sandyard.settings.secrets import Secrets
from sandyard.settings.server import ServerSettings
from sandyard.settings.services import DynamoSettings, E2bSettings
from sandyard.settings.telemetry import TelemetrySettings

__all__ = [
    "BrokerSettings",
    "DeliverySettings",
    "DynamoSettings",
    "E2bSettings",
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
    "describe",
    "load_settings",
    "tokens",
]


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


def describe() -> Iterator[tuple[str, str, str, str]]:
    """Section, variable, default and meaning of every setting."""
    for section in _sections().values():
        for name, field in section.model_fields.items():
            default = "" if field.default is None else str(field.default)
            title = " ".join((section.__doc__ or "").split()).rstrip(".")
            yield title, name.upper(), default, field.description or ""


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
