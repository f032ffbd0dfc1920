"""For admins: users, the events of every part, and the health of the parts."""

from typing import Any

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen
from sandyard.kit.errors import NotFoundError

ADMIN = "/console/admin"
_ROLES = {"make-admin": "admin", "make-user": "user"}


async def _show(request: ConsoleRequest) -> Response:
    viewer, query = request.signed_in, request.query
    platform = viewer.api.paths.platform
    users = None
    if viewer.account is not None and request.wants("users"):
        users = await viewer.api.get(
            f"{platform}/admin/users", limit=50, q=query.get("q"), cursor=query.get("cursor")
        )
    return request.page("admin.html", users=users, health=await request.check_health())


async def _act(request: ConsoleRequest) -> Response:
    parameters, api = request.path_params, request.api
    path = f"{api.paths.platform}/admin/users/{parameters['account_id']}"
    action = parameters["action"]
    if action in ("activate", "deactivate"):
        await api.post(f"{path}/{action}")
    elif action in _ROLES:
        await api.call("PUT", f"{path}/role", body={"role": _ROLES[action]})
    else:
        raise NotFoundError("There is no such action.")
    return await _show(request)


async def _broadcast(request: ConsoleRequest) -> Response:
    form, api = await request.form(), request.api
    body = {"title": form.get("title", ""), "message": form.get("message", "")}
    answer = await api.post(f"{api.paths.platform}/admin/notifications", body)
    return request.page("_counts.html", counts=answer)


async def _events(request: ConsoleRequest) -> Response:
    """Of the selected part; the Platform's include those of previews."""
    viewer, query = request.signed_in, request.query
    paths = viewer.api.paths
    sources = {
        "broker": f"{paths.broker}/admin/events",
        "telemetry": f"{paths.telemetry}/events",
        "platform": f"{paths.platform}/admin/events",
    }
    shown = [name for name in sources if _may_see(request, name)]
    part = query.get("part", shown[0])
    if part not in shown:
        raise NotFoundError("There is no such part.")
    names = ("kind", "subject", "actor", "cursor")
    filters: dict[str, Any] = {name: query.get(name) for name in names}
    page = await viewer.api.get(sources[part], limit=50, **filters)
    return request.page("admin_events.html", shown=shown, part=part, **page)


def _may_see(request: ConsoleRequest, part: str) -> bool:
    needs_account = part == "platform"
    return part in request.pages.parts and not (needs_account and request.signed_in.account is None)


SCREENS = (
    Screen(ADMIN, _show, for_operators=True),
    Screen(ADMIN + "/users/{account_id}/{action}", _act, methods=("POST",), for_operators=True),
    Screen(ADMIN + "/broadcast", _broadcast, methods=("POST",), for_operators=True),
    Screen(ADMIN + "/events", _events, for_operators=True),
)
