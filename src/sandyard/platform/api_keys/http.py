"""Calls about API keys."""

from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, Field

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.api_keys.model import AccountKey, KeyChanges, KeyFilter, KeySort
from sandyard.platform.api_keys.service import AccountKeys
from sandyard.platform.fields import (
    Cursor,
    Description,
    Limit,
    Name,
    RequestBody,
    Search,
    unchanged,
)
from sandyard.platform.principal import Principal


class NewKeyBody(RequestBody):
    name: Name
    description: Description | None = None


class KeyBody(RequestBody):
    """Fields that are left out stay as they are."""

    name: Name = unchanged()
    description: Description | None = None

    def changes(self) -> KeyChanges:
        changes: KeyChanges = {}
        if "name" in self.model_fields_set:
            changes["name"] = self.name
        if "description" in self.model_fields_set:
            changes["description"] = self.description
        return changes


class KeyAnswer(BaseModel):
    key_id: str
    name: str
    description: str | None
    prefix: str = Field(validation_alias="api_key", description="How the key begins")
    is_active: bool
    last_used_at: datetime | None = Field(description="To within five minutes")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, key: AccountKey) -> Self:
        return cls.model_validate(key, from_attributes=True)


class NewKeyAnswer(BaseModel):
    key_id: str
    api_key: str = Field(description="Shown this once")
    name: str
    description: str | None
    created_at: datetime


class KeyPage(BaseModel):
    api_keys: list[KeyAnswer]
    next_cursor: str | None


def create_keys_router(keys: AccountKeys, guard: AccessGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/api-keys", tags=["api keys"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.post(
        "",
        summary="Make an API key",
        status_code=201,
        response_model=NewKeyAnswer,
        responses=errors(400, 401, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def create(body: Annotated[NewKeyBody, Body()], caller: Caller) -> Any:
        """Shown this once; only its hash is kept. It opens whatever a login opens."""
        key, api_key = await keys.create(
            caller.account_id, name=body.name, description=body.description
        )
        return NewKeyAnswer(
            key_id=key.key_id,
            api_key=api_key,
            name=key.name,
            description=key.description,
            created_at=key.created_at,
        )

    @router.get(
        "",
        summary="List your API keys",
        response_model=KeyPage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_keys(
        caller: Caller,
        q: Search = None,
        is_active: bool | None = None,
        sort: KeySort = KeySort.NEWEST,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """`q` looks into name, description and the key's beginning."""
        page = await keys.list(
            caller.account_id, KeyFilter(q, is_active), sort=sort, limit=limit, cursor=cursor
        )
        shown = [KeyAnswer.of(key) for key in page.items]
        return KeyPage(api_keys=shown, next_cursor=page.next_cursor)

    @router.get(
        "/{key_id}",
        summary="Look at an API key",
        response_model=KeyAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_key(key_id: str, caller: Caller) -> Any:
        """All but the key itself."""
        return KeyAnswer.of(await keys.get(caller.account_id, key_id))

    @router.patch(
        "/{key_id}",
        summary="Rename or describe an API key",
        response_model=KeyAnswer,
        responses=errors(400, 401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def update_key(key_id: str, body: Annotated[KeyBody, Body()], caller: Caller) -> Any:
        """Null takes the description away."""
        return KeyAnswer.of(await keys.update(caller.account_id, key_id, body.changes()))

    @router.post(
        "/{key_id}/activate",
        summary="Activate an API key",
        response_model=KeyAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def activate_key(key_id: str, caller: Caller) -> Any:
        """In force with the next request."""
        return KeyAnswer.of(await keys.update(caller.account_id, key_id, {"is_active": True}))

    @router.post(
        "/{key_id}/deactivate",
        summary="Deactivate an API key",
        response_model=KeyAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def deactivate_key(key_id: str, caller: Caller) -> Any:
        """In force with the next request."""
        return KeyAnswer.of(await keys.update(caller.account_id, key_id, {"is_active": False}))

    @router.delete(
        "/{key_id}",
        summary="Delete an API key",
        status_code=204,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def delete_key(key_id: str, caller: Caller) -> None:
        """In force with the next request."""
        await keys.delete(caller.account_id, key_id)

    return router
