"""Settings of Telemetry."""

from typing import Literal

from pydantic import Field

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import AcceptedToken, Seconds, Section, Token

_PREFIX = pattern(r"^[A-Za-z0-9_.-]{0,200}$", "must be up to 200 letters, digits, _, . and -")


class TelemetrySettings(Section):
    """Telemetry."""

    telemetry_admin_token: AcceptedToken = None
    """Tokens of operators, comma-separated, each of at least 16 characters."""
    api_key_pepper: Token = None
    """Hashed together with each API key, comma-separated: the first is used for new keys, and keys
    made with any of them are valid."""
    telemetry_store: Literal["sql", "dynamodb"] = "sql"
    """Storage engine of Telemetry."""
    telemetry_table_prefix: str = Field("", pattern=_PREFIX)
    """DynamoDB: prefix of the tables' names."""
    readings_retention_days: float = Field(90, gt=0, le=36500)
    """Retention of readings, by their own timestamp."""
    retention_interval_sec: Seconds = 3600
    """SQL: interval of the job `retention`."""
