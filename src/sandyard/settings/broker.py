"""Settings of the Broker and of its cloud provider."""

from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from sandyard.kit.patterns import pattern
from sandyard.settings import fields


class BrokerSettings(fields.Section):
    """The Broker."""

    broker_api_token: fields.AcceptedToken = None
    """Tokens of tracks, comma-separated, each of at least 16 characters."""
    broker_admin_token: fields.AcceptedToken = None
    """Tokens of operators, comma-separated, each of at least 16 characters."""
    ip_allowlist: fields.Networks | None = None
    """Networks from which operators may call, comma-separated, such as `10.0.0.0/8`. Behind a
    proxy, also set TRUSTED_PROXIES. Unset: all."""
    api_base_path: str = Field(
        "/v1", pattern=pattern(r"^(/[A-Za-z0-9._-]+)+$", "must be a path such as /v1")
    )
    """Base path of the Broker's API."""
    pool_store: Literal["sql", "dynamodb"] = "sql"
    """Storage engine of the pool."""
    k_candidates: fields.Positive = Field(15, le=1000)
    """DynamoDB: how many free sandboxes a process prefetches."""
    lab_duration_hours: fields.Hours = 4
    """Default duration of a lease, fixed when a sandbox is added."""
    lease_max_hours: fields.Hours = Field(24, validate_default=True)
    """Maximum duration of a lease that a track requests or extends."""
    grace_period_minutes: float = Field(30, ge=0)
    """How long after its end a lease that was not released is reclaimed."""
    sync_interval_sec: fields.Seconds = 600
    """Interval of the job `sync`."""
    cleanup_interval_sec: fields.Seconds = 300
    """Interval of the job `cleanup`."""
    auto_expiry_interval_sec: fields.Seconds = 300
    """Interval of the job `expiry`."""
    queue_max_wait_sec: fields.Seconds = 60
    """Maximum wait of a call with `Prefer: wait`."""
    queue_ticket_ttl_sec: fields.Seconds = 60
    """How long a ticket stays in the queue without a call of its track."""
    queue_interval_sec: fields.Seconds = 5
    """Interval of the job `queue`."""
    reservations_interval_sec: fields.Seconds = 5
    """Interval of the job `reservations`."""
    pool_max_total: fields.Positive | None = None
    """Maximum size of the pool. Reservations beyond it are refused. Unset: the limit for
    reservations is the pool's current size."""
    pool_min_available: int = Field(0, ge=0)
    """How many free sandboxes the job `pool` maintains by creating them at the provider, in
    addition to those that reservations lack. 0: it creates only those."""
    pool_low_available: int = Field(5, ge=0)
    """The event `pool.low` is written when this many sandboxes or fewer are free."""
    pool_create_per_hour: int = Field(0, ge=0)
    """Maximum number of sandboxes that the job `pool` creates in an hour. 0: none."""
    pool_lookahead_minutes: float = Field(30, ge=0)
    """How long before a reservation begins its missing sandboxes are created."""
    pool_name_prefix: str = Field(
        "sandyard-",
        pattern=pattern(r"^[A-Za-z0-9._-]{1,64}$", "must be 1 to 64 letters, digits, ., _ and -"),
    )
    """Prefix of the names of created sandboxes."""
    pool_interval_sec: fields.Seconds = 60
    """Interval of the job `pool`."""
    hold_hours: fields.Hours = 24
    """Default duration of a hold. After it, a sandbox that a track has had is deleted, and one that
    none has had is restored."""
    holds_interval_sec: fields.Seconds = 300
    """Interval of the job `holds`."""
    lease_max_replacements: int = Field(5, ge=0)
    """How many times a track may replace the sandbox of one lease. 0: only operators may."""
    client_turnover_per_hour: int = Field(6, ge=0)
    """How many sandboxes a client with `max_leases` may take from the pool in each hour of the
    clock, for each lease that it may have: new leases and replacements. 0: no limit."""
    probe: str | None = Field(
        None,
        pattern=pattern(
            r"^(provider|https?://[^\s/]+\S*|tcp://[^\s/]+:[0-9]{1,5})$",
            "must be provider, a URL, or tcp:// with a host and a port",
        ),
    )
    """How free sandboxes are probed: `provider` asks the provider, a URL is requested,
    `tcp://host:port` is connected to. `{name}`, `{external_id}` and `{sandbox_id}` are replaced by
    the sandbox's values, as in `http://{name}.labs.example:8080/healthz`. Unset: not probed."""
    probe_interval_sec: fields.Seconds = 60
    """Interval of the job `probe`."""
    probe_timeout_sec: fields.Seconds = 3
    """Timeout of a probe."""
    probe_threshold: fields.Positive = 3
    """Consecutive failed probes before a sandbox is quarantined."""
    probe_parallel: fields.Positive = 20
    """Concurrent probes."""
    probe_at_claim: bool = False
    """Also probe a sandbox when it is leased, before its track gets it."""
    cleanup_parallel: fields.Positive = 10
    """Concurrent deletions at the provider."""
    deletion_retry_max_attempts: fields.Positive = 3
    """Failed deletions before `deletion_failed`."""
    deletion_backoff_base_sec: fields.Seconds = 300
    """Maximum delay after the first failed deletion."""
    deletion_backoff_max_sec: fields.Seconds = 3600
    """Maximum delay between two attempts to delete."""
    rate_limit_per_track: fields.Rate | None = None
    """Rate limit per track, such as `10/minute`. Unset: none."""
    rate_limit_storage_url: str = "async+memory://"
    """Storage of the rate limiter, as a URL of the `limits` library."""

    @field_validator("lease_max_hours")
    @classmethod
    def _covers_a_lab(cls, hours: float, info: ValidationInfo) -> float:
        if hours < info.data.get("lab_duration_hours", 0):
            raise ValueError("must not be less than LAB_DURATION_HOURS")
        return hours

    @field_validator("pool_min_available")
    @classmethod
    def _is_possible(cls, available: int, info: ValidationInfo) -> int:
        total = info.data.get("pool_max_total")
        if total is not None and available > total:
            raise ValueError("must not exceed POOL_MAX_TOTAL")
        return available

    @field_validator("probe_at_claim")
    @classmethod
    def _has_a_probe(cls, is_wanted: bool, info: ValidationInfo) -> bool:
        if is_wanted and "probe" in info.data and info.data["probe"] is None:
            raise ValueError("needs PROBE to be set")
        return is_wanted

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return fields.networks(self.ip_allowlist or "")


class OAuthSettings(fields.Section):
    """OAuth2 access tokens."""

    auth_jwks_url: fields.URL | None = None
    """URL of the issuer's keys. Unset: access tokens are not accepted."""
    auth_issuer: str | None = None
    """Required `iss` of access tokens."""
    auth_audience: str | None = None
    """Accepted audiences, comma-separated: `aud`, or `client_id` for tokens without `aud`, such as
    Cognito's."""
    auth_scope_prefix: str = ""
    """Prefix of Sandyard's scopes in the issuer's tokens, such as `sandyard/`."""
    auth_leeway_sec: float = Field(30, ge=0, le=300)
    """Allowed clock skew of the issuer."""


class ProviderSettings(fields.Section):
    """The cloud provider (ENG CSP)."""

    csp_base_url: fields.URL | None = None
    """URL of the provider's API. Unset: a built-in simulated provider."""
    csp_api_token: fields.Token = None
    """Token for the provider's API."""
    csp_dialect: Literal["generic", "infoblox"] = "generic"
    """Dialect of the provider's API."""
    csp_timeout_connect_sec: fields.Seconds = 2
    """Connect timeout."""
    csp_timeout_read_sec: fields.Seconds = 5
    """Read timeout."""
    csp_max_attempts: fields.Positive = 3
    """Attempts per call, on transient errors."""
    backoff_base_ms: fields.Positive = 100
    """First backoff, and its jitter; if set, also for DynamoDB (else 25)."""
    backoff_max_ms: fields.Positive = 5000
    """Maximum backoff; if set, also for DynamoDB (else 800)."""
    circuit_breaker_threshold: fields.Positive = 5
    """Consecutive failures that open the circuit; also for DynamoDB."""
    circuit_breaker_timeout_sec: fields.Seconds = 60
    """How long the circuit stays open; if set, also for DynamoDB (else 5)."""
