"""Checks that Telemetry's events match its devices and keys."""

from collections.abc import Callable

from sandyard.kit.changes.events import EventLog
from sandyard.kit.changes.verification import HistoryReport, verify_gone, verify_history
from sandyard.telemetry.model import ApiKey, Device
from sandyard.telemetry.ports import KeyStore, TelemetryStore


async def verify(
    store: TelemetryStore,
    keys: KeyStore,
    log: EventLog,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> HistoryReport:
    async def find_device(hardware_id: str) -> Device | None:
        return (await store.find_devices([hardware_id])).get(hardware_id)

    async def find(subject: str) -> Device | ApiKey | None:
        return await find_device(subject) or await keys.find_key(subject)

    report = await verify_history(store.all_devices(), find_device, log, progress=progress)
    report.add(await verify_history(keys.all_keys(), keys.find_key, log))
    report.add(await verify_gone(find, log))
    return report
