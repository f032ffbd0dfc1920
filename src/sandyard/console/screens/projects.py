"""Projects: the list; and one with its files beside its preview."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.api import ApiError
from sandyard.console.app import ConsoleRequest, Screen, actions, calling
from sandyard.console.forms import whole_number

PROJECTS = "/console/projects"
ONE = PROJECTS + "/{project_id}"
_PROJECT = "platform/projects/{project_id}"


async def _list(request: ConsoleRequest) -> Response:
    cursor = request.query.get("cursor")
    page = await request.api.get("platform/projects", limit=50, cursor=cursor)
    return request.page("projects.html", **page)


async def _create(request: ConsoleRequest) -> Response:
    name = (await request.form()).get("name", "")
    made = await request.api.post("platform/projects", {"name": name})
    return request.redirect(f"{PROJECTS}/{made['project_id']}")


async def _show(request: ConsoleRequest, *, path: str | None = None) -> Response:
    """`path` is the file that was just saved."""
    project, files, status = await asyncio.gather(
        request.api.get(_PROJECT), request.api.get(_PROJECT + "/files"), _status(request)
    )
    chosen = path or request.query.get("file")
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
        answer: dict[str, Any] = await request.api.get(_PROJECT + "/sandbox/status")
    except ApiError:
        return None
    return answer


async def _link(request: ConsoleRequest, status: dict[str, Any] | None) -> str | None:
    """The link that opens the running preview in a frame."""
    if status is None or status["status"] != "running":
        return None
    made = await request.api.post(_PROJECT + "/tokens", {"scopes": ["view"]})
    return None if made["url"] is None else str(made["url"])


async def _save(request: ConsoleRequest) -> Response:
    form = await request.form()
    path = form.get("path", "")
    change = {"path": path, "content": form.get("content", ""), "encoding": "utf-8"}
    body = {"files": [change], "expected_version": whole_number(form, "version")}
    await request.api.call("PUT", _PROJECT + "/files", body=body)
    if "show" in form:
        await request.api.post(_PROJECT + "/sync")
    return await _show(request, path=path)


SCREENS = (
    Screen(PROJECTS, _list),
    Screen(PROJECTS, _create, "POST"),
    Screen(ONE, _show),
    *actions(
        ONE,
        {
            "files": _save,
            "sync": calling(f"POST {_PROJECT}/sync", _show),
            "stop": calling(f"DELETE {_PROJECT}/sandbox", _show),
        },
    ),
)
