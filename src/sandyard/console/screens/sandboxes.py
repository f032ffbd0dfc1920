"""Sandboxes: the list and the gallery of templates, and one with its program, files and costs."""

import asyncio
from datetime import datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from sandyard.console.app import ConsoleRequest, Screen, actions, calling
from sandyard.console.forms import (
    FLAG,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    VARIABLE,
    WHOLE,
    WHOLE_OR_NONE,
    Field,
    Form,
    body_of,
    number,
    whole_number,
)

SANDBOXES = "/console/sandboxes"
ONE = SANDBOXES + "/{sandbox_id}"
FILTERS = ("status", "q", "project_id", "sort", "cursor")
STATUSES = ("created", "starting", "running", "stopped", "timeout", "recycled")
WORKSPACE = "/workspace"
FIRST_TEMPLATE = "static"
"""Starts immediately, and shows a page."""
CHARTED = ("cpu", "memory", "storage")
_SANDBOX = "platform/sandboxes/{sandbox_id}"
_SHOWN_AFTER_SEC = 0.5
_EXTENDED_SEC = 86_400
NETWORKS = {
    "none": "nothing",
    "packages": "package indexes and git hosts",
    "internet": "all public hosts",
}

DEFAULTS = {
    "cpu_spec": 1,
    "memory_spec": 1,
    "max_running_seconds": 86_400,
    "idle_stop_minutes": 60,
    "network": None,
    "program_policy": "on_failure",
}


def _hours(form: Form, name: str) -> int:
    return round(number(form, name) * 3600)


def _mounts(form: Form, name: str) -> list[dict[str, Any]]:
    """Each as `name:/path`, with `:ro` to read it alone."""
    mounts = [each.split(":") for each in form[name].split()]
    return [
        {"name": volume, "read_only": rest[1:] == ["ro"]} | ({"path": rest[0]} if rest else {})
        for volume, *rest in mounts
    ]


_SIZE = {
    **dict.fromkeys(("cpu_spec", "memory_spec"), NUMBER),
    "max_running_seconds": Field(_hours),
    "network": TEXT,
    "idle_stop_minutes": WHOLE_OR_NONE,
    "program_policy": TEXT,
}
NEW = {
    **_SIZE,
    **dict.fromkeys(("name", "template_id", "project_id", "description"), TEXT),
    **dict.fromkeys(("recycle_on_timeout", "keeps_memory"), FLAG),
    "volumes": Field(_mounts),
}
CHANGED = {
    **_SIZE,
    "name": TEXT,
    **dict.fromkeys(("description", "project_id"), TEXT_OR_NONE),
    "wake_on_request": FLAG,
}
_starts: set[asyncio.Task[Any]] = set()
"""Requests under way, which the event loop alone would not keep alive."""


async def _list(request: ConsoleRequest) -> Response:
    filters = request.filters(*FILTERS)
    listed, quota = await asyncio.gather(
        request.api.get("platform/sandboxes", limit=50, **filters),
        request.api.get("platform/me/quota"),
    )
    filters.pop("cursor", None)
    return request.page("sandboxes.html", **listed, filters=filters, statuses=STATUSES, quota=quota)


async def _gallery(request: ConsoleRequest) -> Response:
    templates, projects = await asyncio.gather(
        request.api.get("platform/templates", limit=100, q=request.query.get("q")),
        request.api.get("platform/projects", limit=100),
    )
    return request.page(
        "sandbox_new.html",
        templates=sorted(templates["templates"], key=_order),
        projects=[each for each in projects["projects"] if each["status"] == "active"],
        networks=NETWORKS,
        defaults=DEFAULTS,
    )


def _order(template: dict[str, Any]) -> tuple[bool, ...]:
    """The initially selected one first, official ones before others, and those with a page before
    those without."""
    is_first = template["is_official"] and template["name"] == FIRST_TEMPLATE
    return not is_first, not template["is_official"], template["category"] != "web"


async def _create(request: ConsoleRequest) -> Response:
    form, api = await request.form(), request.api
    body = body_of(form, NEW)
    made = await api.post("platform/sandboxes", body)
    if "start" in form:
        await begin_start(request, made["sandbox_id"])
    return request.redirect(f"{SANDBOXES}/{made['sandbox_id']}")


async def _start(request: ConsoleRequest) -> Response:
    await begin_start(request, request.path_params["sandbox_id"])
    return await _show(request)


async def begin_start(request: ConsoleRequest, sandbox_id: str) -> None:
    """Return soon, so that the page shows how it starts. ApiError if it is refused at once; the
    page shows a later failure as the sandbox's state."""
    start = asyncio.create_task(request.api.post(f"platform/sandboxes/{sandbox_id}/start"))
    _starts.add(start)
    start.add_done_callback(_forget)
    done, _ = await asyncio.wait([start], timeout=_SHOWN_AFTER_SEC)
    for each in done:
        each.result()


def _forget(start: asyncio.Task[Any]) -> None:
    _starts.discard(start)
    if not start.cancelled():
        start.exception()  # its sandbox has the reason


async def _show(request: ConsoleRequest) -> Response:
    api, sandbox_id = request.api, request.path_params["sandbox_id"]
    sandbox, variables, history, month = await asyncio.gather(
        api.get(_SANDBOX),
        api.get(_SANDBOX + "/env", limit=50, cursor=request.query.get("variables")),
        api.get(_SANDBOX + "/history", limit=20),
        api.get("platform/billing/month-to-date", sandbox_id=sandbox_id),
    )
    return request.page(
        "sandbox.html",
        sandbox=sandbox,
        month=month,
        variables=variables["variables"],
        next_variables=variables["next_cursor"],
        events=history["events"],
    )


async def _settings(request: ConsoleRequest, *, link: dict[str, Any] | None = None) -> Response:
    """`link` is one that was just made."""
    sandbox, projects = await asyncio.gather(
        request.api.get(_SANDBOX), request.api.get("platform/projects", limit=100)
    )
    has_run = sandbox["started_at"] is not None
    egress = await request.api.get(_SANDBOX + "/egress") if has_run else None
    return request.page(
        "sandbox_settings.html",
        sandbox=sandbox,
        egress=egress,
        projects=projects["projects"],
        networks=NETWORKS,
        link=link,
    )


async def _open(request: ConsoleRequest) -> Response:
    """Redirects to its page, with a link that is valid for an hour."""
    form = await request.form()
    body = {"port": int(form["port"])} if form.get("port", "").isdigit() else {}
    made = await request.api.post(_SANDBOX + "/tokens", body)
    return Response(status_code=303, headers={"Location": made["url"]})


async def _chart(request: ConsoleRequest) -> Response:
    """Resource usage, in the form of the page's chart."""
    answer = await request.api.get(_SANDBOX + "/metrics", bucket="15s")
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
    sandbox, files = await asyncio.gather(request.api.get(_SANDBOX), _listed(request))
    folder = request.query.get("path") or WORKSPACE
    return request.page("sandbox_files.html", sandbox=sandbox, folder=folder, files=files)


async def _tree(request: ConsoleRequest) -> Response:
    """One level of the tree; a folder is loaded when it is opened."""
    sandbox_id, files = request.path_params["sandbox_id"], await _listed(request)
    return request.page("_tree.html", sandbox_id=sandbox_id, files=files)


async def _listed(request: ConsoleRequest) -> list[dict[str, Any]]:
    """The contents of the requested folder, its first thousand, folders first."""
    folder = request.query.get("path") or WORKSPACE
    listed = await request.api.get(_SANDBOX + "/files/list", path=folder)
    return sorted(listed["files"], key=lambda each: (each["kind"] != "folder", each["name"]))


async def _ports(request: ConsoleRequest) -> Response:
    """The listening ports; loaded on demand, as the query counts as use of the sandbox."""
    api = request.api
    found, sandbox = await asyncio.gather(api.get(_SANDBOX + "/ports"), api.get(_SANDBOX))
    return request.page("_ports.html", ports=found["ports"], sandbox=sandbox)


async def _publish_port(request: ConsoleRequest) -> Response:
    """Or make it private, if it is public."""
    changed = {whole_number(await request.form(), "port")}
    public = set((await request.api.get(_SANDBOX))["public_ports"]) ^ changed
    await request.api.call("PATCH", _SANDBOX, body={"public_ports": sorted(public)})
    return await _ports(request)


async def _terminal(request: ConsoleRequest) -> Response:
    sandbox = await request.api.get(_SANDBOX)
    return request.console.pages.terminal(request.http, request.signed_in, sandbox=sandbox)


SCREENS = (
    Screen(SANDBOXES, _list),
    Screen(SANDBOXES, _create, "POST"),
    Screen(SANDBOXES + "/new", _gallery),
    Screen(ONE, _show),
    *actions(
        ONE,
        {
            "open": _open,
            "env": calling(f"PUT {_SANDBOX}/env/{{name}}", _show, fields=VARIABLE),
            "settings": calling(f"PATCH {_SANDBOX}", ONE + "/settings", fields=CHANGED),
            "share": calling(
                f"POST {_SANDBOX}/tokens",
                _settings,
                fields={"minutes": WHOLE, "port": WHOLE},
                shown="link",
            ),
            "start": _start,
            "stop": calling(f"POST {_SANDBOX}/stop", _show),
            "suspend": calling(f"POST {_SANDBOX}/stop", _show, {"memory": True}),
            "ports": _publish_port,
            "recycle": calling(f"DELETE {_SANDBOX}", _show),
            "publish": calling(f"PATCH {_SANDBOX}", _show, {"is_public": True}),
            "rescue": calling(f"POST {_SANDBOX}/start", _show, {"program": False}),
            "extend": calling(f"POST {_SANDBOX}/extend", _show, {"seconds": _EXTENDED_SEC}),
            **{
                f"program/{each}": calling(f"POST {_SANDBOX}/program/{each}", _show)
                for each in ("start", "stop", "restart")
            },
            "hide": calling(f"PATCH {_SANDBOX}", _show, {"is_public": False}),
        },
    ),
    Screen(ONE + "/env/{name}", calling(f"DELETE {_SANDBOX}/env/{{name}}", _show), "DELETE"),
    Screen(ONE + "/settings", _settings),
    Screen(ONE + "/chart", _chart),
    Screen(ONE + "/files", _files),
    Screen(ONE + "/files/tree", _tree),
    Screen(ONE + "/ports", _ports),
    Screen(ONE + "/terminal", _terminal),
)
