"""For operators: users, events and health of every part; the Broker's clients and webhooks."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, actions, calling, operator_screen
from sandyard.console.forms import whole_number
from sandyard.kit.errors import NotFoundError

ADMIN = "/console/admin"
INTEGRATIONS = ADMIN + "/integrations"
SCOPES = ("allocate", "read", "operate", "admin")
_USER = "platform/admin/users/{account_id}"
_WEBHOOK = "broker/admin/webhooks/{webhook_id}"
_EVENTS = {
    "broker": "broker/admin/events",
    "telemetry": "telemetry/events",
    "platform": "platform/admin/events",
}
"""The Platform's include those of previews."""


async def _show(request: ConsoleRequest) -> Response:
    users = None
    if request.signed_in.account is not None and request.wants("users"):
        filters = request.filters("q", "cursor")
        users = await request.api.get("platform/admin/users", limit=50, **filters)
    return request.page("admin.html", users=users, health=await request.console.check_health())


async def _broadcast(request: ConsoleRequest) -> Response:
    form = await request.form()
    body = {name: form.get(name, "") for name in ("title", "message")}
    answer = await request.api.post("platform/admin/notifications", body)
    return request.page("_counts.html", counts=answer)


async def _events(request: ConsoleRequest) -> Response:
    shown = [name for name in _EVENTS if _may_see(request, name)]
    part = request.query.get("part", shown[0])
    if part not in shown:
        raise NotFoundError("There is no such part.")
    filters = request.filters("kind", "subject", "actor", "cursor")
    page = await request.api.get(_EVENTS[part], limit=50, **filters)
    return request.page("admin_events.html", shown=shown, part=part, **page)


def _may_see(request: ConsoleRequest, part: str) -> bool:
    has_account = request.signed_in.account is not None
    return part in request.console.pages.parts and (part != "platform" or has_account)


async def _integrations(request: ConsoleRequest, *, shown_once: str | None = None) -> Response:
    """`shown_once` is the token or secret of what was just created."""
    clients, webhooks = await asyncio.gather(
        _all_pages(request, "clients"), _all_pages(request, "webhooks")
    )
    return request.page(
        "integrations.html",
        clients=clients,
        webhooks=webhooks,
        scopes=SCOPES,
        shown_once=shown_once,
    )


async def _all_pages(request: ConsoleRequest, what: str) -> list[Any]:
    page = await request.api.get(f"broker/admin/{what}", limit=100)
    found: list[Any] = page[what]
    while page["next_cursor"] is not None:
        page = await request.api.get(f"broker/admin/{what}", limit=100, cursor=page["next_cursor"])
        found += page[what]
    return found


async def _make_client(request: ConsoleRequest) -> Response:
    form = await request.form()
    body: dict[str, Any] = {"name": form.get("name", ""), "scopes": [form.get("scope", "read")]}
    body |= await request.form("track_prefix", "rate")
    if "max_leases" in form:
        body["max_leases"] = whole_number(form, "max_leases")
    made = await request.api.post("broker/admin/clients", body)
    return await _integrations(request, shown_once=made["token"])


async def _make_webhook(request: ConsoleRequest) -> Response:
    form = await request.form()
    body = {"url": form.get("url", ""), "kinds": form.get("kinds", "").split()}
    made = await request.api.post("broker/admin/webhooks", body)
    return await _integrations(request, shown_once=made["secret"])


async def _deliveries(request: ConsoleRequest) -> Response:
    webhook, page = await asyncio.gather(
        request.api.get(_WEBHOOK), request.api.get(_WEBHOOK + "/deliveries", limit=50)
    )
    return request.page("deliveries.html", webhook=webhook, deliveries=page["deliveries"])


async def _replay(request: ConsoleRequest) -> Response:
    event_id = (await request.form()).get("event_id", "")
    await request.api.post(_WEBHOOK + "/replay", {"event_id": event_id})
    return await _deliveries(request)


SCREENS = (
    operator_screen(ADMIN, _show),
    *actions(
        ADMIN + "/users/{account_id}",
        {
            "activate": calling(f"POST {_USER}/activate", _show),
            "deactivate": calling(f"POST {_USER}/deactivate", _show),
            "make-admin": calling(f"PUT {_USER}/role", _show, {"role": "admin"}),
            "make-user": calling(f"PUT {_USER}/role", _show, {"role": "user"}),
        },
        operators_of="broker",
    ),
    operator_screen(ADMIN + "/broadcast", _broadcast, "POST"),
    operator_screen(ADMIN + "/events", _events),
    operator_screen(INTEGRATIONS, _integrations),
    operator_screen(INTEGRATIONS + "/clients", _make_client, "POST"),
    operator_screen(
        INTEGRATIONS + "/clients/{name}",
        calling("DELETE broker/admin/clients/{name}", _integrations),
        "DELETE",
    ),
    operator_screen(INTEGRATIONS + "/webhooks", _make_webhook, "POST"),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}", _deliveries),
    operator_screen(
        INTEGRATIONS + "/webhooks/{webhook_id}",
        calling(f"DELETE {_WEBHOOK}", _integrations),
        "DELETE",
    ),
    operator_screen(INTEGRATIONS + "/webhooks/{webhook_id}/replay", _replay, "POST"),
)
