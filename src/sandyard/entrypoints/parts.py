"""The parts that a process runs, from opened to closed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from sandyard.bootstrap.broker import BrokerPart, build_broker
from sandyard.bootstrap.part import Part
from sandyard.bootstrap.platform import PlatformPart, build_platform
from sandyard.bootstrap.previews import build_previews
from sandyard.bootstrap.telemetry import build_telemetry
from sandyard.entrypoints.provider import ProviderAddress, provider_address
from sandyard.settings import Settings


@dataclass(frozen=True, slots=True)
class RunningParts:
    parts: Sequence[Part]
    provider: ProviderAddress | None
    """Where the Broker's sandboxes come from."""


@asynccontextmanager
async def running_parts(
    settings: Settings, data_dir: Path, registry: CollectorRegistry
) -> AsyncIterator[RunningParts]:
    """Every part that the settings name."""
    async with AsyncExitStack() as stack:
        parts: list[Part] = []
        provider: ProviderAddress | None = None
        platform: PlatformPart | None = None
        for name in settings.server.part_names:
            part: Part
            match name:
                case "broker":
                    provider = await stack.enter_async_context(
                        provider_address(settings.provider, data_dir)
                    )
                    part = open_broker(settings, data_dir, provider, registry)
                case "telemetry":
                    part = build_telemetry(settings, data_dir=data_dir, registry=registry)
                case "platform":
                    part = platform = build_platform(settings, data_dir=data_dir)
                case _:
                    assert platform is not None  # noqa: S101 - the settings see to it
                    part = build_previews(settings, platform)
            stack.push_async_callback(part.close)
            parts.append(part)
        yield RunningParts(parts, provider)


def open_broker(
    settings: Settings, data_dir: Path, provider: ProviderAddress, registry: CollectorRegistry
) -> BrokerPart:
    return build_broker(
        settings,
        data_dir=data_dir,
        provider_url=provider.url,
        provider_token=provider.token,
        registry=registry,
    )
