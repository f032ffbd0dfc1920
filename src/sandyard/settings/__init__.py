"""Settings, read once from the environment and passed in; nothing here is a module-level instance.

Each section is frozen and belongs to one part. `describe` lists every variable for the docs.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, get_type_hints

from pydantic import ValidationError

from sandyard.kit.errors import SandyardError
from sandyard.kit.patterns import in_words
from sandyard.settings.broker import BrokerSettings, ProviderSettings
from sandyard.settings.fields import Section, tokens
from sandyard.settings.platform import PlatformSettings, SandboxSettings
from sandyard.settings.previews import PreviewSettings
from sandyard.settings.server import ServerSettings
from sandyard.settings.services import DynamoSettings, E2bSettings
from sandyard.settings.telemetry import TelemetrySettings

__all__ = [
    "BrokerSettings",
    "DynamoSettings",
    "E2bSettings",
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


REMOVED = {
    "CLIENT_ADDRESS_HEADER": "is not read any more. Set TRUSTED_PROXIES to the networks of your "
    "proxies, such as 10.0.0.0/8; the client's address is then taken from X-Forwarded-For."
}
"""Settings that there were, and what to use in their place."""


class SettingsError(SandyardError):
    """A setting is wrong; each line of the message names a variable."""

    code = "INVALID_SETTINGS"


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings
    broker: BrokerSettings
    provider: ProviderSettings
    dynamo: DynamoSettings
    telemetry: TelemetrySettings
    platform: PlatformSettings
    sandboxes: SandboxSettings
    previews: PreviewSettings
    e2b: E2bSettings

    def only(self, *parts: str) -> "Settings":
        """The same, for a process that runs these parts alone."""
        return replace(self, server=self.server.model_copy(update={"parts": ",".join(parts)}))


def load_settings() -> Settings:
    """All sections from the environment, or one SettingsError with a line per mistake."""
    mistakes = [f"{name}: {why}" for name, why in REMOVED.items() if os.environ.get(name)]
    sections: dict[str, Section] = {}
    for name, section in _sections().items():
        try:
            sections[name] = section()
        except ValidationError as error:
            mistakes.extend(_lines(error))
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return Settings(**sections)  # type: ignore[arg-type]


def describe() -> Iterator[tuple[str, str, str, str]]:
    """Section, variable, default and meaning of every setting."""
    for section in _sections().values():
        for name, field in section.model_fields.items():
            default = "" if field.default is None else str(field.default)
            title = " ".join((section.__doc__ or "").split()).rstrip(".")
            yield title, name.upper(), default, field.description or ""


def _sections() -> dict[str, type[Section]]:
    return get_type_hints(Settings)


def _lines(error: ValidationError) -> Iterator[str]:
    for mistake in error.errors(include_input=False, include_url=False):
        where: Any = mistake["loc"][0] if mistake["loc"] else "settings"
        yield f"{str(where).upper()}: {in_words(mistake)}"
