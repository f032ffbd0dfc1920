"""Settings of the Broker and of its cloud provider."""

from ipaddress import IPv4Network, IPv6Network
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import URL, Hours, Positive, Rate, Seconds, Section, Token, networks


class BrokerSettings(Section):
    """The Broker."""

    broker_api_token: Token = Field(None, description="Tokens of tracks, comma-separated.")
    broker_admin_token: Token = Field(None, description="Tokens of operators, comma-separated.")
    ip_allowlist: str | None = Field(
        None,
        description="Networks from which operators may call, comma-separated, such as "
        "`10.0.0.0/8`. Behind a proxy, also set TRUSTED_PROXIES. Unset: all.",
    )
    api_base_path: str = Field(
        "/v1",
        pattern=pattern(r"^(/[A-Za-z0-9._-]+)+$", "must be a path such as /v1"),
        description="Base path of the Broker's API.",
    )
    pool_store: Literal["sql", "dynamodb"] = Field("sql", description="Storage engine of the pool.")
    k_candidates: Positive = Field(
        15, le=1000, description="DynamoDB: how many free sandboxes a process prefetches."
    )
    lab_duration_hours: Hours = Field(
        4, description="Default duration of a lease, fixed when a sandbox is added."
    )
    lease_max_hours: Hours = Field(
        24, description="Maximum duration of a lease that a track requests or extends."
    )
    grace_period_minutes: float = Field(
        30, ge=0, description="How long after its end a lease that was not released is reclaimed."
    )
    sync_interval_sec: Seconds = Field(600, description="Interval of the job `sync`.")
    cleanup_interval_sec: Seconds = Field(300, description="Interval of the job `cleanup`.")
    auto_expiry_interval_sec: Seconds = Field(300, description="Interval of the job `expiry`.")
    queue_max_wait_sec: Seconds = Field(
        60, description="Maximum wait of a call with `Prefer: wait`."
    )
    queue_ticket_ttl_sec: Seconds = Field(
        60, description="How long a ticket stays in the queue without a call of its track."
    )
    queue_interval_sec: Seconds = Field(5, description="Interval of the job `queue`.")
    reservations_interval_sec: Seconds = Field(5, description="Interval of the job `reservations`.")
    pool_max_total: Positive | None = Field(
        None,
        description="Maximum size of the pool. Reservations beyond it are refused. Unset: the "
        "limit for reservations is the pool's current size.",
    )
    pool_min_available: int = Field(
        0,
        ge=0,
        description="How many free sandboxes the job `pool` maintains by creating them at the "
        "provider, in addition to those that reservations lack. 0: it creates only "
        "those.",
    )
    pool_low_available: int = Field(
        5,
        ge=0,
        description="The event `pool.low` is written when this many sandboxes or fewer are free.",
    )
    pool_create_per_hour: int = Field(
        0,
        ge=0,
        description="Maximum number of sandboxes that the job `pool` creates in an hour. 0: none.",
    )
    pool_lookahead_minutes: float = Field(
        30,
        ge=0,
        description="How long before a reservation begins its missing sandboxes are created.",
    )
    pool_name_prefix: str = Field(
        "sandyard-",
        pattern=pattern(r"^[A-Za-z0-9._-]{1,64}$", "must be 1 to 64 letters, digits, ., _ and -"),
        description="Prefix of the names of created sandboxes.",
    )
    pool_interval_sec: Seconds = Field(60, description="Interval of the job `pool`.")
    hold_hours: Hours = Field(
        24,
        description="Default duration of a hold. After it, an event reports the hold as overdue.",
    )
    holds_interval_sec: Seconds = Field(300, description="Interval of the job `holds`.")
    probe: str | None = Field(
        None,
        pattern=pattern(
            r"^(provider|https?://[^\s/]+\S*|tcp://[^\s/]+:[0-9]{1,5})$",
            "must be provider, a URL, or tcp:// with a host and a port",
        ),
        description="How free sandboxes are probed: `provider` asks the provider, a URL is "
        "requested, `tcp://host:port` is connected to. `{name}`, `{external_id}` and "
        "`{sandbox_id}` are replaced by the sandbox's values, as in "
        "`http://{name}.labs.example:8080/healthz`. Unset: not probed.",
    )
    probe_interval_sec: Seconds = Field(60, description="Interval of the job `probe`.")
    probe_timeout_sec: Seconds = Field(3, description="Timeout of a probe.")
    probe_threshold: Positive = Field(
        3, description="Consecutive failed probes before a sandbox is quarantined."
    )
    probe_parallel: Positive = Field(20, description="Concurrent probes.")
    probe_at_claim: bool = Field(
        default=False,
        description="Also probe a sandbox when it is leased, before its track gets it.",
    )
    cleanup_parallel: Positive = Field(10, description="Concurrent deletions at the provider.")
    deletion_retry_max_attempts: Positive = Field(
        3, description="Failed deletions before `deletion_failed`."
    )
    deletion_backoff_base_sec: Seconds = Field(
        300, description="Maximum delay after the first failed deletion."
    )
    deletion_backoff_max_sec: Seconds = Field(
        3600, description="Maximum delay between two attempts to delete."
    )
    rate_limit_per_track: Rate | None = Field(
        None, description="Rate limit per track, such as `10/minute`. Unset: none."
    )
    rate_limit_storage_url: str = Field(
        "async+memory://",
        description="Storage of the rate limiter, as a URL of the `limits` library.",
    )

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

    @field_validator("ip_allowlist")
    @classmethod
    def _are_networks(cls, text: str | None) -> str | None:
        networks(text or "")
        return text

    @property
    def allowed_networks(self) -> tuple[IPv4Network | IPv6Network, ...]:
        return networks(self.ip_allowlist or "")


class OAuthSettings(Section):
    """OAuth2 access tokens."""

    auth_jwks_url: URL | None = Field(
        None,
        description="URL of the issuer's keys. Unset: access tokens are not accepted.",
    )
    auth_issuer: str | None = Field(None, description="Required `iss` of access tokens.")
    auth_audience: str | None = Field(
        None,
        description="Accepted audiences, comma-separated: `aud`, or `client_id` for tokens "
        "without `aud`, such as Cognito's.",
    )
    auth_scope_prefix: str = Field(
        "",
        description="Prefix of Sandyard's scopes in the issuer's tokens, such as `sandyard/`.",
    )
    auth_leeway_sec: float = Field(
        30, ge=0, le=300, description="Allowed clock skew of the issuer."
    )


class ProviderSettings(Section):
    """The cloud provider (ENG CSP)."""

    csp_base_url: URL | None = Field(
        None,
        description="URL of the provider's API. Unset: a built-in simulated provider.",
    )
    csp_api_token: Token = Field(None, description="Token for the provider's API.")
    csp_dialect: Literal["generic", "infoblox"] = Field(
        "generic", description="Dialect of the provider's API."
    )
    csp_timeout_connect_sec: Seconds = Field(2, description="Connect timeout.")
    csp_timeout_read_sec: Seconds = Field(5, description="Read timeout.")
    csp_max_attempts: Positive = Field(3, description="Attempts per call, on transient errors.")
    backoff_base_ms: Positive = Field(100, description="First backoff, and its jitter.")
    backoff_max_ms: Positive = Field(5000, description="Maximum backoff.")
    circuit_breaker_threshold: Positive = Field(
        5, description="Consecutive failures that open the circuit."
    )
    circuit_breaker_timeout_sec: Seconds = Field(60, description="How long the circuit stays open.")
