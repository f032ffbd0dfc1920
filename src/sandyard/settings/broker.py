"""Settings of the Broker and of its cloud provider."""

from typing import Literal

from pydantic import Field

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import URL, Hours, Positive, Rate, Seconds, Section, Token


class BrokerSettings(Section):
    """The Broker."""

    broker_api_token: Token = Field(None, description="Tokens of tracks, comma-separated.")
    broker_admin_token: Token = Field(None, description="Tokens of operators, comma-separated.")
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
    grace_period_minutes: float = Field(
        30, ge=0, description="How long after its end an unreturned lease is reclaimed."
    )
    sync_interval_sec: Seconds = Field(600, description="Interval of the job `sync`.")
    cleanup_interval_sec: Seconds = Field(300, description="Interval of the job `cleanup`.")
    auto_expiry_interval_sec: Seconds = Field(300, description="Interval of the job `expiry`.")
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


class ProviderSettings(Section):
    """The cloud provider (ENG CSP)."""

    csp_base_url: str | None = Field(
        None,
        pattern=URL,
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
