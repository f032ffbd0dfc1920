"""Projects: the list; and one with its files beside its preview."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.api import ApiError
from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.forms import whole_number
from sandyard.kit.errors import NotFoundError

PROJECTS = "/console/projects"
ONE = PROJECTS + "/{project_id}"


def _path(request: ConsoleRequest, tail: str = "") -> str:
    project_id = request.path_params["project_id"]
    return f"{request.api.paths.platform}/projects/{project_id}{tail}"


async def _list(request: ConsoleRequest) -> Response:
    api = request.api
    cursor = request.query.get("cursor")
    page = await api.get(f"{api.paths.platform}/projects", limit=50, cursor=cursor)
    return request.page("projects.html", **page)


async def _create(request: ConsoleRequest) -> Response:
    api, name = request.api, (await request.form()).get("name", "")
    made = await api.post(f"{api.paths.platform}/projects", {"name": name})
    return request.redirect(f"{PROJECTS}/{made['project_id']}")


async def _show(request: ConsoleRequest) -> Response:
    api = request.api
    project, files, status = await asyncio.gather(
        api.get(_path(request)), api.get(_path(request, "/files")), _status(request)
    )
    chosen = request.query.get("file")
    shown = [each for each in files["files"] if each["path"] == chosen] or files["files"]
    return request.page(
        "project.html",
        project=project,
        files=files["files"],
        version=files["version"],
        shown=shown[0] if shown else None,
        status=status,
        link=await _link(request, status),
    )


async def _status(request: ConsoleRequest) -> dict[str, Any] | None:
    """None while the preview runtime is unavailable."""
    try:
        answer: dict[str, Any] = await request.api.get(_path(request, "/sandbox/status"))
    except ApiError:
        return None
    return answer


async def _link(request: ConsoleRequest, status: dict[str, Any] | None) -> str | None:
    """The link that opens the running preview in a frame."""
    if status is None or status["status"] != "running":
        return None
    made = await request.api.post(_path(request, "/tokens"), {"scopes": ["view"]})
    return None if made["url"] is None else str(made["url"])


async def _save(request: ConsoleRequest) -> Response:
    form = await request.form()
    path = form.get("path", "")
    change = {"path": path, "content": form.get("content", ""), "encoding": "utf-8"}
    body = {"files": [change], "expected_version": whole_number(form, "version")}
    await request.api.call("PUT", _path(request, "/files"), body=body)
    if "show" in form:
        await request.api.post(_path(request, "/sync"))
    return await _show(request)


async def _act(request: ConsoleRequest) -> Response:
    action, api = request.path_params["action"], request.api
    if action == "sync":
        await api.post(_path(request, "/sync"))
    elif action == "stop":
        await api.call("DELETE", _path(request, "/sandbox"))
    else:
        raise NotFoundError("There is no such action.")
    return await _show(request)


SCREENS = (
    Screen(PROJECTS, _list),
    Screen(PROJECTS, _create, methods=("POST",)),
    Screen(ONE, _show),
    Screen(ONE + "/files", _save, methods=("POST",)),
    Screen(ONE + "/{action}", _act, methods=("POST",)),
)
