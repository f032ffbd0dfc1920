"""What sections are made of: kinds of fields, and the base of all sections."""

from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from sandyard.kit import rates
from sandyard.kit.patterns import pattern


def _rate(text: str) -> str:
    rates.Rate.parse(text)
    return text


def networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    """The comma-separated networks of a variable; ValueError if one is none."""
    try:
        return tuple(ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise ValueError("must be networks such as 10.0.0.0/8, comma-separated") from error


URL = pattern(r"^https?://[^\s/]+", "must begin with http:// or https://")
Seconds = Annotated[float, Field(gt=0)]
Hours = Annotated[float, Field(gt=0, le=24 * 365)]
Positive = Annotated[int, Field(gt=0)]
Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
Rate = Annotated[str, AfterValidator(_rate)]
Token = SecretStr | None


class Section(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore")


def tokens(value: SecretStr | None) -> tuple[str, ...]:
    """The comma-separated tokens of a variable, so that an old and a new one may both hold."""
    if value is None:
        return ()
    return tuple(token.strip() for token in value.get_secret_value().split(",") if token.strip())
