"""Settings, clock and ids in; the wired parts out. The only place that picks an engine."""

from sandyard.broker.stores.sql import MIGRATIONS as BROKER_MIGRATIONS
from sandyard.kit.migrations import Migrations
from sandyard.platform.schema import MIGRATIONS as PLATFORM_MIGRATIONS
from sandyard.telemetry.stores.sql import MIGRATIONS as TELEMETRY_MIGRATIONS

MIGRATED_PARTS: tuple[Migrations, ...] = (
    BROKER_MIGRATIONS,
    TELEMETRY_MIGRATIONS,
    PLATFORM_MIGRATIONS,
)
