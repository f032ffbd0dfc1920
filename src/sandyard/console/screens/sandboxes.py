"""Sandboxes: the list and the gallery of templates, and one with its program, files and costs."""

import asyncio
from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.forms import number
from sandyard.kit.errors import NotFoundError

SANDBOXES = "/console/sandboxes"
ONE = SANDBOXES + "/{sandbox_id}"
FILTERS = ("status", "q", "project_id", "cursor")
STATUSES = ("created", "starting", "running", "stopped", "timeout", "recycled")
WORKSPACE = "/workspace"
FIRST_TEMPLATE = "static"
"""Starts immediately, and shows a page."""
CHARTED = ("cpu", "memory", "storage")


def _path(request: ConsoleRequest, tail: str = "") -> str:
    sandbox_id = request.path_params["sandbox_id"]
    return f"{request.api.paths.platform}/sandboxes/{sandbox_id}{tail}"


async def _list(request: ConsoleRequest) -> Response:
    api, query = request.api, request.query
    filters = {name: query.get(name) for name in FILTERS}
    listed, quota = await asyncio.gather(
        api.get(f"{api.paths.platform}/sandboxes", limit=50, **filters),
        api.get(f"{api.paths.platform}/me/quota"),
    )
    return request.page(
        "sandboxes.html",
        sandboxes=listed["sandboxes"],
        next_cursor=listed["next_cursor"],
        filters={name: value for name, value in filters.items() if value and name != "cursor"},
        statuses=STATUSES,
        quota=quota,
    )


async def _gallery(request: ConsoleRequest) -> Response:
    api, query = request.api, request.query
    platform = api.paths.platform
    templates, projects = await asyncio.gather(
        api.get(f"{platform}/templates", limit=100, q=query.get("q")),
        api.get(f"{platform}/projects", limit=100),
    )
    return request.page(
        "sandbox_new.html",
        templates=sorted(templates["templates"], key=_order),
        projects=[each for each in projects["projects"] if each["status"] == "active"],
    )


def _order(template: dict[str, Any]) -> tuple[bool, ...]:
    """The initially selected one first, official ones before others, and those with a page before
    those without."""
    is_first = template["is_official"] and template["name"] == FIRST_TEMPLATE
    return not is_first, not template["is_official"], template["category"] != "web"


async def _create(request: ConsoleRequest) -> Response:
    form, api = await request.form(), request.api
    body: dict[str, Any] = {
        name: form[name] for name in ("name", "template_id", "project_id") if name in form
    }
    numbers = ("cpu_spec", "memory_spec")
    body |= {name: number(form, name) for name in numbers if name in form}
    if "max_running_hours" in form:
        body["max_running_seconds"] = round(number(form, "max_running_hours") * 3600)
    made = await api.post(f"{api.paths.platform}/sandboxes", body)
    if "start" in form:
        await api.post(f"{api.paths.platform}/sandboxes/{made['sandbox_id']}/start")
    return request.redirect(f"{SANDBOXES}/{made['sandbox_id']}")


async def _show(request: ConsoleRequest) -> Response:
    api = request.api
    sandbox_id = request.path_params["sandbox_id"]
    sandbox, variables, history, month = await asyncio.gather(
        api.get(_path(request)),
        api.get(_path(request, "/env")),
        api.get(_path(request, "/history"), limit=20),
        api.get(f"{api.paths.platform}/billing/month-to-date", sandbox_id=sandbox_id),
    )
    return request.page(
        "sandbox.html",
        sandbox=sandbox,
        month=month,
        variables=variables["variables"],
        events=history["events"],
    )


async def _act(request: ConsoleRequest) -> Response:
    action, api = request.path_params["action"], request.api
    if action == "recycle":
        await api.call("DELETE", _path(request))
    elif action in ("start", "stop"):
        await api.post(_path(request, f"/{action}"))
    elif action in ("publish", "hide"):
        await api.call("PATCH", _path(request), body={"is_public": action == "publish"})
    else:
        raise NotFoundError("There is no such action.")
    return await _show(request)


async def _open(request: ConsoleRequest) -> Response:
    """Redirects to its page, with a link that is valid for an hour."""
    form = await request.form()
    body = {"port": int(form["port"])} if form.get("port", "").isdigit() else {}
    made = await request.api.post(_path(request, "/tokens"), body)
    return Response(status_code=303, headers={"Location": made["url"]})


async def _set_variable(request: ConsoleRequest) -> Response:
    form = await request.form()
    body = {"value": form.get("value", ""), "secret": "secret" in form}
    path = _path(request, f"/env/{form.get('name', '')}")
    await request.api.call("PUT", path, body=body)
    return await _show(request)


async def _remove_variable(request: ConsoleRequest) -> Response:
    path = _path(request, f"/env/{request.path_params['name']}")
    await request.api.call("DELETE", path)
    return await _show(request)


async def _chart(request: ConsoleRequest) -> Response:
    """Resource usage, in the form of the page's chart."""
    answer = await request.api.get(_path(request, "/metrics"), bucket="15s")
    buckets = answer["metrics"]
    return JSONResponse(
        {
            "times": [datetime.fromisoformat(each["start"]).timestamp() for each in buckets],
            "series": [
                {"label": name, "values": [each[f"{name}_utilization"] for each in buckets]}
                for name in CHARTED
            ],
            "unit": "%",
        }
    )


async def _files(request: ConsoleRequest) -> Response:
    sandbox, files = await asyncio.gather(request.api.get(_path(request)), _listed(request))
    folder = request.query.get("path") or WORKSPACE
    return request.page("sandbox_files.html", sandbox=sandbox, folder=folder, files=files)


async def _tree(request: ConsoleRequest) -> Response:
    """One level of the tree; a folder is loaded when it is opened."""
    sandbox_id, files = request.path_params["sandbox_id"], await _listed(request)
    return request.page("_tree.html", sandbox_id=sandbox_id, files=files)


async def _listed(request: ConsoleRequest) -> list[dict[str, Any]]:
    """The contents of the requested folder, folders first."""
    folder = request.query.get("path") or WORKSPACE
    listed = await request.api.get(_path(request, "/files/list"), path=folder)
    return sorted(listed["files"], key=lambda each: (each["kind"] != "folder", each["name"]))


async def _ports(request: ConsoleRequest) -> Response:
    """The listening ports; loaded on demand, as the query counts as use of the sandbox."""
    found = await request.api.get(_path(request, "/ports"))
    sandbox_id = request.path_params["sandbox_id"]
    return request.page("_ports.html", ports=found["ports"], sandbox_id=sandbox_id)


async def _terminal(request: ConsoleRequest) -> Response:
    sandbox = await request.api.get(_path(request))
    return request.pages.terminal(request.http, request.signed_in, sandbox=sandbox)


SCREENS = (
    Screen(SANDBOXES, _list),
    Screen(SANDBOXES, _create, methods=("POST",)),
    Screen(SANDBOXES + "/new", _gallery),
    Screen(ONE, _show),
    Screen(ONE + "/open", _open, methods=("POST",)),
    Screen(ONE + "/env", _set_variable, methods=("POST",)),
    Screen(ONE + "/env/{name}", _remove_variable, methods=("DELETE",)),
    Screen(ONE + "/chart", _chart),
    Screen(ONE + "/files", _files),
    Screen(ONE + "/files/tree", _tree),
    Screen(ONE + "/ports", _ports),
    Screen(ONE + "/terminal", _terminal),
    Screen(ONE + "/{action}", _act, methods=("POST",)),
)
