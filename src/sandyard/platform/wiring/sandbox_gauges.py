"""Gauges of sandboxes on `/metrics`."""

from datetime import timedelta

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.observability.metrics import Gauges, Labelled
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.ports import SandboxStore


async def sandbox_gauges(store: SandboxStore, clock: Clock, silent_for: timedelta) -> Gauges:
    counts = await store.count_active(unseen_since=utc_time(clock.now()) - silent_for)
    by_status: dict[tuple[str, ...], float] = {
        (str(status),): counts.by_status.get(status, 0)
        for status in (Status.STARTING, Status.RUNNING)
    }
    return {
        "sandyard_sandboxes_active": (
            "Sandboxes that start or run",
            Labelled(("status",), by_status),
        ),
        "sandyard_sandboxes_silent": (
            "Sandboxes that run by their rows and whose node gives no sign of life",
            counts.silent,
        ),
    }
