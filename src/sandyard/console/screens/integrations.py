"""For admins: the clients of the Broker with their tokens, and webhooks with their deliveries."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, operator_screen
from sandyard.console.forms import whole_number
from sandyard.console.screens.admin import ADMIN

INTEGRATIONS = ADMIN + "/integrations"
SCOPES = ("allocate", "read", "operate", "admin")


def _path(request: ConsoleRequest, tail: str) -> str:
    return f"{request.api.paths.broker}/admin/{tail}"


async def _show(request: ConsoleRequest) -> Response:
    return await _page(request, shown_once=None)


async def _page(request: ConsoleRequest, *, shown_once: str | None) -> Response:
    api = request.api
    clients, webhooks = await asyncio.gather(
        api.get(_path(request, "clients")), api.get(_path(request, "webhooks"))
    )
    return request.page(
        "integrations.html",
        clients=clients["clients"],
        webhooks=webhooks["webhooks"],
        scopes=SCOPES,
        shown_once=shown_once,
    )


async def _make_client(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"name": form.get("name", ""), "scopes": [form.get("scope", "read")]}
    body |= {name: form[name] for name in ("track_prefix", "rate") if name in form}
    if "max_leases" in form:
        body["max_leases"] = whole_number(form, "max_leases")
    made = await request.api.post(_path(request, "clients"), body)
    return await _page(request, shown_once=made["token"])


async def _delete_client(request: ConsoleRequest) -> Response:
    name = request.path_params["name"]
    await request.api.call("DELETE", _path(request, f"clients/{name}"))
    return await _show(request)


async def _make_webhook(request: ConsoleRequest) -> Response:
    form = await request.form()
    body = {"url": form.get("url", ""), "kinds": form.get("kinds", "").split()}
    made = await request.api.post(_path(request, "webhooks"), body)
    return await _page(request, shown_once=made["secret"])


async def _delete_webhook(request: ConsoleRequest) -> Response:
    webhook_id = request.path_params["webhook_id"]
    await request.api.call("DELETE", _path(request, f"webhooks/{webhook_id}"))
    return await _show(request)


async def _deliveries(request: ConsoleRequest) -> Response:
    path = f"webhooks/{request.path_params['webhook_id']}"
    api = request.api
    webhook, page = await asyncio.gather(
        api.get(_path(request, path)), api.get(_path(request, f"{path}/deliveries"), limit=50)
    )
    return request.page("deliveries.html", webhook=webhook, deliveries=page["deliveries"])


async def _replay(request: ConsoleRequest) -> Response:
    path = f"webhooks/{request.path_params['webhook_id']}/replay"
    body = {"event_id": (await request.form()).get("event_id", "")}
    await request.api.post(_path(request, path), body)
    return await _deliveries(request)


SCREENS = (
    operator_screen(INTEGRATIONS + "", _show),
    operator_screen(INTEGRATIONS + "/clients", _make_client, "POST"),
    operator_screen(INTEGRATIONS + "/clients/{name}", _delete_client, "DELETE"),
    operator_screen(INTEGRATIONS + "/webhooks", _make_webhook, "POST"),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}", _deliveries),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}", _delete_webhook, "DELETE"),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}/replay", _replay, "POST"),
)
