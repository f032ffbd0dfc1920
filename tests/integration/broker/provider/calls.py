"""Calls of the provider, and answers to them."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sandyard.broker.provider.client import HttpProvider

DIALECTS = ("generic", "infoblox")
EMPTY = {
    "generic": JSONResponse({"sandboxes": [], "next_cursor": None}),
    "infoblox": JSONResponse({"results": []}),
}
DEADLINE_SEC = 60

Call = Callable[[HttpProvider], Awaitable[Any]]


async def list_all(provider: HttpProvider) -> None:
    await provider.list_sandboxes()


async def delete_one(provider: HttpProvider) -> None:
    await provider.delete_sandbox("some-id")


def page(*entries: Any, cursor: Any = None) -> Response:
    return JSONResponse({"sandboxes": list(entries), "next_cursor": cursor})


def account(identity: str, **changes: Any) -> dict[str, Any]:
    entry = {
        "id": f"identity/accounts/{identity}",
        "csp_id": f"csp-{identity}",
        "name": f"name-{identity}",
        "account_type": "sandbox",
        "state": "active",
        "created_at": "2026-01-01T00:00:00Z",
    }
    return entry | changes


def query(request: Request) -> dict[str, str]:
    return dict(request.query_params)
