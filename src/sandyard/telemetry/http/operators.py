"""Calls of operators: keys, devices, and the events of both."""

from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Query

from sandyard.kit.changes.events import EventLog
from sandyard.kit.http.events import EventFilter, EventPage, history_of
from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import Paging, example_of
from sandyard.kit.http.security import BearerGuard, SecurityScheme, secured_by
from sandyard.telemetry.http import PREFIX, schemas
from sandyard.telemetry.intake import HARDWARE_ID
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.model import DeviceOrder
from sandyard.telemetry.service import Telemetry

OPERATOR_TOKEN = SecurityScheme(
    "TelemetryToken",
    "A value of the setting `TELEMETRY_ADMIN_TOKEN`; if it is not set, the content of "
    "`secrets/telemetry_admin_token` in the data directory (`data` by default).",
)

KeyId = Annotated[str, Path(description="The id from the response that created the key")]
Order = Annotated[DeviceOrder, Query(description="Order of the devices")]
Search = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=64,
        pattern=schemas.FRIENDLY_NAME,
        description="Part of the name or hardware id, in any letter case",
    ),
]
HardwareId = Annotated[str, Path(pattern=HARDWARE_ID, description="MAC in upper case")]


def operator_routes(guard: BearerGuard) -> GuardedRoutes:
    return GuardedRoutes(
        prefix=PREFIX,
        tag="telemetry",
        check=guard.require,
        security=secured_by(OPERATOR_TOKEN),
    )


def create_operators_router(
    telemetry: Telemetry, keys: ApiKeys, log: EventLog, guard: BearerGuard
) -> APIRouter:
    routes = operator_routes(guard)
    _add_keys(routes, keys)
    _add_devices(routes, telemetry)
    _add_events(routes, telemetry, keys, log)
    return routes.router


def _add_keys(routes: GuardedRoutes, keys: ApiKeys) -> None:
    @routes.post("/api-keys", "Create an API key", status_code=201)
    async def create_device_key(
        body: Annotated[
            schemas.DeviceKeyBody | None, Body(examples=[example_of(schemas.DeviceKeyBody)])
        ] = None,
    ) -> schemas.NewDeviceKeyAnswer:
        """The key is shown only once; only its hash is stored."""
        made = await keys.create(description=body.description if body else None)
        return schemas.NewDeviceKeyAnswer.of(made)

    @routes.get("/api-keys", "List API keys")
    async def list_device_keys(paging: Paging) -> schemas.DeviceKeyPage:
        """Newest first, including revoked keys."""
        return schemas.DeviceKeyPage.of(await keys.list(**paging), schemas.DeviceKeyAnswer.of)

    @routes.delete("/api-keys/{key_id}", "Revoke an API key", 404)
    async def revoke_device_key(key_id: KeyId) -> schemas.DeviceKeyAnswer:
        """Takes effect on every replica within 30 seconds. Repeating it changes nothing."""
        return schemas.DeviceKeyAnswer.of(await keys.revoke(key_id))


def _add_devices(routes: GuardedRoutes, telemetry: Telemetry) -> None:
    @routes.get("/devices", "List devices")
    async def list_devices(
        paging: Paging,
        order: Order = DeviceOrder.LAST_SEEN,
        q: Search = None,
    ) -> schemas.DevicePage:
        """Most recently seen first, or with `order=silent` longest silent first. A cursor is valid
        only for its own order."""
        store = telemetry.store
        page = await store.page_of_devices(order=order, search=q, **paging)
        return schemas.DevicePage.of(page, schemas.DeviceAnswer.of)

    @routes.get("/devices/{hardware_id}", "Get a device", 404)
    async def get_device(hardware_id: HardwareId) -> schemas.DeviceAnswer:
        """The data of its last registration, and when it was last seen."""
        return schemas.DeviceAnswer.of(await telemetry.get_device(hardware_id))

    @routes.delete("/devices/{hardware_id}", "Delete a device", 404)
    async def delete_device(hardware_id: HardwareId) -> schemas.DeviceAnswer:
        """With all its readings. If it registers again, it is a new device, and may send readings
        again that it has sent before."""
        return schemas.DeviceAnswer.of(await telemetry.delete_device(hardware_id))

    @routes.put("/devices/{hardware_id}", "Rename a device", 404)
    async def rename_device(
        hardware_id: HardwareId, body: schemas.RenameDeviceBody
    ) -> schemas.DeviceAnswer:
        """Readings that arrive from now on have the new name."""
        return schemas.DeviceAnswer.of(
            await telemetry.rename_device(hardware_id, body.friendly_name)
        )


def _add_events(routes: GuardedRoutes, telemetry: Telemetry, keys: ApiKeys, log: EventLog) -> None:
    @routes.get("/events", "List events")
    async def list_telemetry_events(chosen: Annotated[EventFilter, Depends()]) -> EventPage:
        """Events of devices and keys, newest first."""
        return await chosen.page(log)

    @routes.get("/devices/{hardware_id}/history", "Get a device's history", 404)
    async def get_device_history(hardware_id: HardwareId, paging: Paging) -> EventPage:
        """The device's events, newest first."""
        await telemetry.get_device(hardware_id)
        return await history_of(log, hardware_id, paging)

    @routes.get("/api-keys/{key_id}/history", "Get an API key's history", 404)
    async def get_device_key_history(key_id: KeyId, paging: Paging) -> EventPage:
        """The key's events, newest first."""
        await keys.get(key_id)
        return await history_of(log, key_id, paging)
