"""Operators' calls for the events of devices and keys."""

from typing import Annotated

from fastapi import APIRouter, Depends

from sandyard.kit.changes.events import EventLog
from sandyard.kit.http.events import EventFilter, EventPage, history_of
from sandyard.kit.http.schemas import Cursor, Limit
from sandyard.kit.http.security import BearerGuard
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.telemetry.http.operators import HardwareId, KeyId, operator_routes
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.service import Telemetry


def create_events_router(
    telemetry: Telemetry, keys: ApiKeys, log: EventLog, guard: BearerGuard, *, prefix: str
) -> APIRouter:
    routes = operator_routes(guard, prefix=prefix)

    @routes.get("/events", "List events")
    async def list_telemetry_events(asked: Annotated[EventFilter, Depends()]) -> EventPage:
        """Events of devices and keys, newest first."""
        return await asked.page(log)

    @routes.get("/devices/{hardware_id}/history", "Get a device's history", 404)
    async def get_device_history(
        hardware_id: HardwareId, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
    ) -> EventPage:
        """The device's events, newest first."""
        await telemetry.get_device(hardware_id)
        return await history_of(log, hardware_id, limit=limit, cursor=cursor)

    @routes.get("/api-keys/{key_id}/history", "Get an API key's history", 404)
    async def get_device_key_history(
        key_id: KeyId, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
    ) -> EventPage:
        """The key's events, newest first."""
        await keys.get(key_id)
        return await history_of(log, key_id, limit=limit, cursor=cursor)

    return routes.router
