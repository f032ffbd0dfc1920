"""Building blocks of sections: field types, and the base of all sections."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from sandyard.kit import rates
from sandyard.kit.patterns import pattern
from sandyard.settings.references import ReferencedEnvironment


def _rate(text: str) -> str:
    rates.Rate.parse(text)
    return text


def long_enough(characters: int) -> Callable[[SecretStr | None], SecretStr | None]:
    """Requires this length of each of the comma-separated values."""

    def check(value: SecretStr | None) -> SecretStr | None:
        if any(len(each) < characters for each in tokens(value)):
            raise ValueError(f"must have at least {characters} characters")
        return value

    return check


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The comma-separated networks of a variable; ValueError if one is invalid."""
    try:
        return tuple(ip_network(each) for each in words(text))
    except ValueError as error:
        raise ValueError("must be networks such as 10.0.0.0/8, comma-separated") from error


def _networks(text: str) -> str:
    networks(text)
    return text


def _url(text: str) -> str:
    try:
        url = urlsplit(text)
        is_whole = bool(url.hostname) and url.port != 0  # an invalid port raises ValueError
    except ValueError:
        is_whole = False
    if not is_whole or any(each.isspace() for each in text):
        raise ValueError("must be a URL such as https://example.com:8443")
    return text


_HTTP = pattern(r"^https?://[^\s/]+", "must begin with http:// or https://")
URL = Annotated[str, Field(pattern=_HTTP), AfterValidator(_url)]
Seconds = Annotated[float, Field(gt=0)]
Hours = Annotated[float, Field(gt=0, le=24 * 365)]
Positive = Annotated[int, Field(gt=0)]
Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
Rate = Annotated[str, AfterValidator(_rate)]
Networks = Annotated[str, AfterValidator(_networks)]
Token = SecretStr | None
AcceptedToken = Annotated[Token, AfterValidator(long_enough(16))]
"""Whoever sends one of these is let in."""
SigningKey = Annotated[Token, AfterValidator(long_enough(32))]


class Section(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_others: PydanticBaseSettingsSource,
        **_sources: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, ReferencedEnvironment(settings_cls)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From these values and the defaults, ignoring the environment."""
        made = cls.__new__(cls)
        BaseModel.__init__(made, **values)
        return made


def tokens(value: SecretStr | None) -> tuple[str, ...]:
    """The comma-separated tokens of a variable, so that an old and a new one may both be valid."""
    return () if value is None else tuple(words(value.get_secret_value()))


def words(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
