"""Settings of the process as a whole."""

import re
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from sandyard.settings import fields


class ServerSettings(fields.Section):
    """The process as a whole."""

    parts: str | None = None
    """Parts that this process serves, comma-separated. Unset: all."""
    database_url: SecretStr | None = None
    """PostgreSQL URL. Unset: SQLite files in the data dir."""
    database_password: SecretStr | None = None
    """Password for DATABASE_URL, in place of one in it."""
    database_pool_size: fields.Positive = 16
    """Connections to PostgreSQL per part of a process."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Lowest level that is logged."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`auto` is `text` on a terminal and `json` elsewhere."""
    metrics_port: int | None = Field(None, ge=1, le=65535)
    """Also serve `/metrics` on this port, without a token."""
    metrics_token: fields.AcceptedToken = None
    """Tokens for `/metrics`, comma-separated, each of at least 16 characters. Unset: open if the
    server listens on loopback only, closed otherwise."""
    secrets_refresh_sec: fields.Seconds = 60
    """How often secrets in files or at AWS are read again."""
    secrets_overlap_sec: float = Field(86_400, ge=0)
    """How long the old value of a rotated secret stays valid."""
    enable_request_id: bool = True
    """Send `X-Request-ID` with each response."""
    job_lease_sec: fields.Seconds = 60
    """How long a job's lease lasts without renewal."""
    event_retention_days: float = Field(90, gt=0, le=36_500)
    """Retention of events; longer if a current state depends on them."""
    event_prune_interval_sec: fields.Seconds = 86_400
    """How often old events are removed."""
    max_body_bytes: fields.Positive = 1_048_576
    """Maximum size of a request body."""
    body_timeout_sec: fields.Seconds = 30
    """Timeout for receiving a request body."""
    max_upload_bytes: fields.Positive = 10 * 1024**3
    """Maximum size of a file or archive that is uploaded to a sandbox."""
    upload_timeout_sec: fields.Seconds = 60
    """Timeout between two chunks of such an upload."""
    max_connections: fields.Positive = 10_000
    """Maximum number of client connections per process. Beyond it, the longest idle ones are
    closed."""
    max_connections_per_address: fields.Positive = 2_000
    """The same per client address. A whole class may share one address; trusted proxies have no
    limit."""
    keep_alive_sec: fields.Seconds = 75
    """How long a connection may be idle, or take to send its headers. Set it longer than the idle
    timeout of a load balancer in front."""
    write_timeout_sec: fields.Seconds = 30
    """How long a client may read nothing of its response before the connection is closed."""
    cors_origins: str | None = None
    """Allowed CORS origins, comma-separated, such as `https://editor.example.com`."""
    trusted_proxies: fields.Networks | None = None
    """Networks of the proxies in front of this server, comma-separated, such as `10.0.0.0/8`. Their
    `X-Forwarded-For` is trusted."""
    drain_sec: float = Field(1.0, ge=0, le=10)
    """How long `/readyz` returns 503 after SIGTERM before the listener closes."""

    @property
    def part_names(self) -> tuple[str, ...]:
        """The words of PARTS; the registry of parts knows which are valid."""
        return tuple(fields.words(self.parts or ""))

    @property
    def event_retention(self) -> timedelta:
        return timedelta(days=self.event_retention_days)

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        return tuple(fields.words(self.cors_origins or ""))

    @property
    def proxy_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return fields.networks(self.trusted_proxies or "")

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, text: str | None) -> str | None:
        origins = fields.words(text or "")
        if not all(re.fullmatch(r"https?://[^/\s*]+", origin) for origin in origins):
            raise ValueError("must be origins such as https://editor.example.com, comma-separated")
        return ",".join(origins) or None

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(
            ("postgresql://", "postgres://", "postgresql+asyncpg://")
        ):
            raise ValueError("must begin with postgresql:// (for SQLite, leave it unset)")
        return url
