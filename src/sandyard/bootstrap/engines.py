"""Which engine each part is on, and how it is opened."""

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from sandyard.kit.sql import Database, open_database
from sandyard.settings import E2bSettings, Settings, SettingsError

if TYPE_CHECKING:  # imported where it is used: most installations don't need it
    from sandyard.kit.dynamo import Dynamo


def is_embedded(settings: Settings, part: str) -> bool:
    """Whether the part's data is in the data dir, and so belongs to one process."""
    part = "platform" if part == "previews" else part  # it shows the Platform's projects
    on_dynamodb = {
        "broker": settings.broker.pool_store == "dynamodb",
        "telemetry": settings.telemetry.telemetry_store == "dynamodb",
    }
    return settings.server.database_url is None and not on_dynamodb.get(part, False)


def embedded_parts(settings: Settings) -> tuple[str, ...]:
    return tuple(part for part in settings.server.part_names if is_embedded(settings, part))


def open_part_database(settings: Settings, data_dir: Path, part: str) -> Database:
    return open_database(
        secret(settings.server.database_url),
        data_dir=data_dir,
        part=part,
        pool_size=settings.server.database_pool_size,
    )


def open_dynamo(settings: Settings) -> "Dynamo":
    from sandyard.kit.dynamo import Dynamo, DynamoPolicy

    return Dynamo(
        region=settings.dynamo.aws_region,
        endpoint_url=settings.dynamo.ddb_endpoint_url,
        policy=DynamoPolicy(circuit_threshold=settings.provider.circuit_breaker_threshold),
    )


def e2b_key(settings: E2bSettings, *, needed_for: str) -> str:
    key = secret(settings.e2b_api_key)
    if key is None:
        raise SettingsError(f"E2B_API_KEY: must be set for {needed_for}")
    return key


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()
