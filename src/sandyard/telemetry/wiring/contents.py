"""All that Telemetry's stores have, for moves."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.concurrency.tasks import for_each
from sandyard.settings import Settings
from sandyard.telemetry.model import ApiKey, Device
from sandyard.telemetry.wiring.part import opened_stores
from sandyard.wiring.contents import Collection, event_collection

_PARALLEL = 32


@asynccontextmanager
async def open_telemetry_contents(
    settings: Settings, data_dir: Path
) -> AsyncIterator[Sequence[Collection]]:
    async with opened_stores(settings, data_dir) as stores:
        slots = asyncio.Semaphore(_PARALLEL)

        async def add_device(device: Device) -> None:
            await stores.store.apply(Transition(None, device, ()))

        async def add_key(key: ApiKey) -> None:
            if await stores.keys.find_key(key.key_id) is None:
                await stores.keys.apply(Transition(None, key, ()))

        async def add_devices(devices: Sequence[Device]) -> None:
            await for_each(devices, add_device, slots=slots)

        async def add_keys(keys: Sequence[ApiKey]) -> None:
            await for_each(keys, add_key, slots=slots)

        store = stores.store
        yield [
            Collection("devices", store.all_devices, add_devices),
            Collection("keys", stores.keys.all_keys, add_keys),
            Collection("readings", store.all_readings, store.restore_readings),
            Collection("markers", store.all_markers, store.restore_markers),
            event_collection(stores.log),
        ]
