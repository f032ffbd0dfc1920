"""A check that Telemetry's events lead to its devices and keys."""

from collections.abc import Callable

from sandyard.kit.events import EventLog
from sandyard.kit.verification import HistoryReport, verify_history
from sandyard.telemetry.model import Device
from sandyard.telemetry.ports import KeyStore, TelemetryStore


async def verify(
    store: TelemetryStore,
    keys: KeyStore,
    log: EventLog,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> HistoryReport:
    """Fold the events of every device and key and compare, while traffic flows."""

    async def find_device(hardware_id: str) -> Device | None:
        return (await store.find_devices([hardware_id])).get(hardware_id)

    devices = await verify_history(store.all_devices(), find_device, log, progress=progress)
    of_keys = await verify_history(keys.all_keys(), keys.find_key, log)
    return HistoryReport(
        devices.subjects + of_keys.subjects, [*devices.problems, *of_keys.problems]
    )
