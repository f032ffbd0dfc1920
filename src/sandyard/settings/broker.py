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
        "`10.0.0.0/8`; the client's address goes by TRUSTED_PROXIES. Unset: all.",
    )
    api_base_path: str = Field(
        "/v1",
        pattern=pattern(r"^(/[A-Za-z0-9._-]+)+$", "must be a path such as /v1"),
        description="Base path of the Broker's API.",
    )
    pool_store: Literal["sql", "dynamodb"] = Field("sql", description="Storage engine of the pool.")
    k_candidates: Positive = Field(
        15, le=1000, description="DynamoDB: free sandboxes that a process prefetches."
    )
    lab_duration_hours: Hours = Field(
        4, description="Duration of a lease, fixed when a sandbox is added."
    )
    lease_max_hours: Hours = Field(
        24, description="How long a lease may last that a track asks for or extends."
    )
    grace_period_minutes: float = Field(
        30, ge=0, description="How long after its end an unreturned lease is reclaimed."
    )
    sync_interval_sec: Seconds = Field(600, description="Interval of the job `sync`.")
    cleanup_interval_sec: Seconds = Field(300, description="Interval of the job `cleanup`.")
    auto_expiry_interval_sec: Seconds = Field(300, description="Interval of the job `expiry`.")
    queue_max_wait_sec: Seconds = Field(
        60, description="How long a call with `Prefer: wait` may wait for a sandbox."
    )
    queue_ticket_ttl_sec: Seconds = Field(
        60, description="How long a ticket stays in the queue if its track does not ask."
    )
    queue_interval_sec: Seconds = Field(5, description="Interval of the job `queue`.")
    reservations_interval_sec: Seconds = Field(5, description="Interval of the job `reservations`.")
    pool_max_total: Positive | None = Field(
        None,
        description="How many sandboxes the pool may have. Reservations are refused beyond it, or, "
        "if it is not set, beyond what the pool has.",
    )
    pool_min_available: int = Field(
        0,
        ge=0,
        description="So many free sandboxes the job `pool` keeps, beside what reservations lack, "
        "by creating them at the provider; 0: it creates none unless a reservation lacks some.",
    )
    pool_low_available: int = Field(
        5, ge=0, description="With so many free sandboxes or fewer, an event `pool.low` tells."
    )
    pool_create_per_hour: int = Field(
        0, ge=0, description="How many sandboxes the job `pool` may create within an hour; 0: none."
    )
    pool_lookahead_minutes: float = Field(
        30, ge=0, description="How long before a reservation begins its sandboxes are created."
    )
    pool_name_prefix: str = Field(
        "sandyard-",
        pattern=pattern(r"^[A-Za-z0-9._-]{1,64}$", "must be 1 to 64 letters, digits, ., _ and -"),
        description="How the names of created sandboxes begin.",
    )
    pool_interval_sec: Seconds = Field(60, description="Interval of the job `pool`.")
    hold_hours: Hours = Field(
        24, description="How long a sandbox is held before an event reminds of it."
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
        "`{sandbox_id}` stand for the sandbox's own, as in "
        "`http://{name}.labs.example:8080/healthz`. Unset: none.",
    )
    probe_interval_sec: Seconds = Field(60, description="Interval of the job `probe`.")
    probe_timeout_sec: Seconds = Field(3, description="How long a probe may take.")
    probe_threshold: Positive = Field(
        3, description="Probes in a row that fail before a sandbox is quarantined."
    )
    probe_parallel: Positive = Field(20, description="Concurrent probes.")
    probe_at_claim: bool = Field(
        default=False,
        description="Probe a sandbox also when it is leased, before its track hears of it.",
    )
    cleanup_parallel: Positive = Field(10, description="Concurrent deletions at the provider.")
    deletion_retry_max_attempts: Positive = Field(
        3, description="Failed deletions before `deletion_failed`."
    )
    deletion_backoff_base_sec: Seconds = Field(
        300, description="Longest delay after the first failed deletion."
    )
    deletion_backoff_max_sec: Seconds = Field(3600, description="Maximum delay between deletions.")
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
        description="URL of the issuer's keys. Unset: access tokens are not taken.",
    )
    auth_issuer: str | None = Field(None, description="The `iss` of its access tokens.")
    auth_audience: str | None = Field(
        None,
        description="Whom they are for, comma-separated: in `aud`, or in `client_id` where a token "
        "has no `aud`, as Cognito's.",
    )
    auth_scope_prefix: str = Field(
        "",
        description="What stands before our scopes in the issuer's names, such as `sandyard/`.",
    )
    auth_leeway_sec: float = Field(
        30, ge=0, le=300, description="How far the issuer's clock may be off."
    )


class ProviderSettings(Section):
    """The cloud provider (ENG CSP)."""

    csp_base_url: URL | None = Field(
        None,
        description="URL of the provider's API. Unset: a built-in simulated provider.",
    )
    csp_api_token: Token = Field(None, description="Token that we send to the provider.")
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
