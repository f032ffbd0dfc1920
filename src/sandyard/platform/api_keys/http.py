"""Calls about API keys."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from sandyard.kit.http.schemas import PageAnswer, Paging, eg, example
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Scope
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.api_keys.model import KeyFilter, KeyFormat, KeySort, NewKey
from sandyard.platform.api_keys.service import AccountKeys
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Answer, NamedBody, NewNamedBody, Search, Timestamp


class NewApiKeyBody(NewNamedBody):
    model_config = example(
        name="CI",
        description="Starts sandboxes for pull requests",
        scope="run",
        expires_at="2126-12-31T00:00:00Z",
    )

    scope: Scope = Field(Scope.ADMIN, description="Each includes the ones before it")
    expires_at: Timestamp | None = Field(None, description="When it expires")

    format: KeyFormat = Field(
        KeyFormat.SANDYARD, description="`e2b` for E2B's SDKs; the access is the same"
    )


class ApiKeyBody(NamedBody):
    """Fields that are left out stay as they are."""

    model_config = example(description=None)


class ApiKeyAnswer(Answer):
    key_id: str = eg("key-7r2d9f0h3j5k8l1zq")
    name: str = eg("CI")
    description: str | None = eg("Starts sandboxes for pull requests")
    prefix: str = eg("sbk-9f3k", validation_alias="api_key", description="Prefix of the key")
    is_active: bool = eg(True)
    scope: Scope = eg("run")
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="To within five minutes")
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")


class NewApiKeyAnswer(Answer):
    key_id: str = eg("key-7r2d9f0h3j5k8l1zq")
    api_key: str = eg("sbk-9f3k2m5n8p1q4r7s0t3v6w9x2y5z8a1b4c7d0e3f", description="Shown only once")
    name: str = eg("CI")
    description: str | None = eg("Starts sandboxes for pull requests")
    scope: Scope = eg("run")
    expires_at: datetime | None
    created_at: datetime = eg("2026-10-30T09:00:00Z")


class ApiKeyPage(PageAnswer):
    api_keys: list[ApiKeyAnswer]
    next_cursor: str | None


_KeyId = Annotated[str, Path(description="The id from the response that created it")]


def create_keys_router(keys: AccountKeys, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "/api-keys", tag="api keys")

    @routes.make("", "Create an API key", 403, status_code=201)
    async def create_api_key(body: NewApiKeyBody, caller: Caller) -> NewApiKeyAnswer:
        """The key is shown only once; only its hash is stored. It is valid wherever a login is,
        except here, within its scope: `read` only reads, `run` also uses sandboxes and previews,
        `admin` does everything."""
        key, api_key = await keys.create(caller, NewKey(**body.model_dump()))
        return NewApiKeyAnswer.of(key, api_key=api_key)

    @routes.get("", "List your API keys")
    async def list_api_keys(
        caller: Caller,
        paging: Paging,
        q: Search = None,
        is_active: Annotated[
            bool | None, Query(description="Only active, or only inactive keys")
        ] = None,
        sort: Annotated[
            KeySort, Query(description="`-` before a name: descending")
        ] = KeySort.NEWEST,
    ) -> ApiKeyPage:
        """`q` searches name, description and the key's prefix."""
        listing = Listing(KeyFilter(q, is_active), sort, **paging)
        page = await keys.list(caller.account_id, listing)
        return ApiKeyPage.of(page, ApiKeyAnswer.of)

    @routes.get("/{key_id}", "Get an API key", 404)
    async def get_api_key(key_id: _KeyId, caller: Caller) -> ApiKeyAnswer:
        """Everything except the key itself."""
        return ApiKeyAnswer.of(await keys.get(caller.account_id, key_id))

    @routes.patch("/{key_id}", "Rename or describe an API key", 404, 409)
    async def update_api_key(key_id: _KeyId, body: ApiKeyBody, caller: Caller) -> ApiKeyAnswer:
        """Null removes the description."""
        return ApiKeyAnswer.of(await keys.update(caller, key_id, body.sent()))

    @routes.post("/{key_id}/activate", "Activate an API key", 404)
    async def activate_api_key(key_id: _KeyId, caller: Caller) -> ApiKeyAnswer:
        """Takes effect with the next request."""
        return ApiKeyAnswer.of(await keys.activate(caller, key_id))

    @routes.post("/{key_id}/deactivate", "Deactivate an API key", 404)
    async def deactivate_api_key(key_id: _KeyId, caller: Caller) -> ApiKeyAnswer:
        """Takes effect with the next request."""
        return ApiKeyAnswer.of(await keys.deactivate(caller, key_id))

    @routes.delete("/{key_id}", "Delete an API key", 404, status_code=204)
    async def delete_api_key(key_id: _KeyId, caller: Caller) -> None:
        """Takes effect with the next request."""
        await keys.delete(caller, key_id)

    return routes.router
