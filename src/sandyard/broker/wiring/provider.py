"""Where the Broker's cloud provider is, and how it is called."""

from dataclasses import dataclass

from sandyard.broker.provider.client import ProviderPolicy
from sandyard.kit.rotation import Secret
from sandyard.settings import ProviderSettings


@dataclass(frozen=True, slots=True)
class ProviderAddress:
    url: str
    token: str | Secret
    description: str
    """For people."""


def provider_policy(provider: ProviderSettings) -> ProviderPolicy:
    return ProviderPolicy(
        connect_timeout_sec=provider.csp_timeout_connect_sec,
        read_timeout_sec=provider.csp_timeout_read_sec,
        attempts=provider.csp_max_attempts,
        backoff_base_sec=provider.backoff_base_ms / 1000,
        backoff_max_sec=provider.backoff_max_ms / 1000,
        circuit_threshold=provider.circuit_breaker_threshold,
        circuit_timeout_sec=provider.circuit_breaker_timeout_sec,
    )
