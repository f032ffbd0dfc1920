"""What the settings make of the engines' clients."""

from sandyard.kit.dynamo.client import DynamoPolicy
from sandyard.settings import ProviderSettings
from sandyard.wiring.stores import dynamo_policy


def test_settings_of_retries_and_circuit_reach_dynamodb() -> None:
    settings = ProviderSettings.of(
        {
            "backoff_base_ms": 50,
            "backoff_max_ms": 2000,
            "circuit_breaker_threshold": 7,
            "circuit_breaker_timeout_sec": 9,
        }
    )
    assert dynamo_policy(settings) == DynamoPolicy(
        backoff_base_sec=0.05, backoff_max_sec=2, circuit_threshold=7, circuit_timeout_sec=9
    )


def test_defaults_of_the_provider_are_not_those_of_dynamodb() -> None:
    assert dynamo_policy(ProviderSettings.of({})) == DynamoPolicy()
