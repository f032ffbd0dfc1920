"""Calls of operators: keys and devices."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Request

from sandyard.kit.http import BearerGuard, checked_first, errors, opened_by
from sandyard.kit.paging import CURSOR_PATTERN, DEFAULT_LIMIT, MAX_LIMIT
from sandyard.telemetry.http.schemas import (
    ApiKeyAnswer,
    ApiKeyBody,
    ApiKeyPage,
    DeviceAnswer,
    DevicePage,
    NewApiKeyAnswer,
    RenameBody,
)
from sandyard.telemetry.intake import HARDWARE_ID
from sandyard.telemetry.keys import ApiKeys
from sandyard.telemetry.service import Telemetry

OPERATOR_TOKEN = "TelemetryToken"  # noqa: S105 - the name of a scheme
_BY_OPERATORS = opened_by(OPERATOR_TOKEN)

HardwareId = Annotated[str, Path(pattern=HARDWARE_ID, description="MAC in upper case")]
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]


def operators_router(guard: BearerGuard, *, prefix: str) -> APIRouter:
    """A router whose every door a token of an operator opens."""

    async def operator(request: Request) -> None:
        guard.check(request)

    return APIRouter(prefix=prefix, tags=["telemetry"], route_class=checked_first(operator))


def create_operators_router(
    telemetry: Telemetry, keys: ApiKeys, guard: BearerGuard, *, prefix: str
) -> APIRouter:
    router = operators_router(guard, prefix=prefix)

    @router.post(
        "/api-keys",
        summary="Make an API key",
        status_code=201,
        response_model=NewApiKeyAnswer,
        responses=errors(400, 401, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def create_key(body: Annotated[ApiKeyBody | None, Body()] = None) -> Any:
        """Shown this once; only its hash is kept."""
        made = await keys.create(description=body.description if body else None)
        return NewApiKeyAnswer.of(made)

    @router.get(
        "/api-keys",
        summary="List API keys",
        response_model=ApiKeyPage,
        responses=errors(400, 401, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def list_keys(limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Any:
        """The newest first, revoked ones too."""
        page = await keys.list(limit=limit, cursor=cursor)
        shown = [ApiKeyAnswer.of(key) for key in page.items]
        return ApiKeyPage(api_keys=shown, next_cursor=page.next_cursor)

    @router.delete(
        "/api-keys/{key_id}",
        summary="Revoke an API key",
        response_model=ApiKeyAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def revoke_key(key_id: str) -> Any:
        """In force within 30 seconds on every replica. Repeating it changes nothing."""
        return ApiKeyAnswer.of(await keys.revoke(key_id))

    @router.get(
        "/devices",
        summary="List devices",
        response_model=DevicePage,
        responses=errors(400, 401, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def list_devices(limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> Any:
        """The most recently seen first."""
        page = await telemetry.list_devices(limit=limit, cursor=cursor)
        shown = [DeviceAnswer.of(device) for device in page.items]
        return DevicePage(devices=shown, next_cursor=page.next_cursor)

    @router.get(
        "/devices/{hardware_id}",
        summary="Look at a device",
        response_model=DeviceAnswer,
        responses=errors(400, 401, 404, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def get_device(hardware_id: HardwareId) -> Any:
        """What it said at its last registration, and when it was last seen."""
        return DeviceAnswer.of(await telemetry.get_device(hardware_id))

    @router.put(
        "/devices/{hardware_id}",
        summary="Name a device",
        response_model=DeviceAnswer,
        responses=errors(400, 401, 404, 503),
        openapi_extra=_BY_OPERATORS,
    )
    async def rename_device(hardware_id: HardwareId, body: Annotated[RenameBody, Body()]) -> Any:
        """Readings that come in from now on carry the name."""
        return DeviceAnswer.of(await telemetry.rename_device(hardware_id, body.friendly_name))

    return router
