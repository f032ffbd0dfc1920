"""Projects: the list; and one with its files beside its preview."""

import asyncio
from typing import Any

from starlette.responses import Response

from sandyard.console.api import ApiError
from sandyard.console.app import ConsoleRequest, Screen, actions, calling
from sandyard.console.forms import TEXT, TEXT_OR_NONE, VARIABLE, WHOLE, whole_number

PROJECTS = "/console/projects"
ONE = PROJECTS + "/{project_id}"
_PROJECT = "platform/projects/{project_id}"
NEW = {"name": TEXT, "description": TEXT}
PUBLISHED = {"version": WHOLE, "mode": TEXT, "root": TEXT, "fallback": TEXT}
CHANGED = {"name": TEXT, "description": TEXT_OR_NONE}


async def _list(request: ConsoleRequest) -> Response:
    cursor = request.query.get("cursor")
    page = await request.api.get("platform/projects", limit=50, cursor=cursor)
    return request.page("projects.html", **page)


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
    """Or delete it."""
    form = await request.form()
    path = form.get("path", "")
    change: dict[str, Any] = {"files": [], "expected_version": whole_number(form, "version")}
    if "delete" in form:
        change["deleted"] = [path]
    else:
        content = form.get("content", "")
        change["files"] = [{"path": path, "content": content, "encoding": "utf-8"}]
    change |= await request.form("message")
    await request.api.call("PUT", _PROJECT + "/files", body=change)
    if "show" in form:
        await request.api.post(_PROJECT + "/sync")
    return await _show(request, path=path)


async def _versions(request: ConsoleRequest) -> Response:
    """With what the chosen one changed, since the one before it or another."""
    chosen, changes = request.filters("version", "since"), None
    if "version" in chosen:
        path = _PROJECT + "/versions/{version}/changes"
        query = {"since": chosen.get("since")}
        changes = await request.api.call("GET", path, query=query, values=chosen)
    listed, project = await asyncio.gather(
        request.api.get(_PROJECT + "/versions"), request.api.get(_PROJECT)
    )
    return request.page("project_versions.html", project=project, changes=changes, **listed)


async def _remove_versions(request: ConsoleRequest) -> Response:
    keep = whole_number(await request.form(), "keep")
    await request.api.call("DELETE", _PROJECT + "/versions", query={"keep": keep})
    return await _versions(request)


async def _settings(request: ConsoleRequest, *, link: dict[str, Any] | None = None) -> Response:
    """`link` is one that was just made."""
    project, variables, history, publication = await asyncio.gather(
        request.api.get(_PROJECT),
        request.api.get(_PROJECT + "/env", limit=50, cursor=request.query.get("variables")),
        request.api.find(_PROJECT + "/sandbox/history"),
        request.api.find(_PROJECT + "/publish"),
    )
    return request.page(
        "project_settings.html",
        project=project,
        variables=variables["variables"],
        next_variables=variables["next_cursor"],
        events=history["events"] if history else [],
        publication=publication,
        link=link,
    )


SCREENS = (
    Screen(PROJECTS, _list),
    Screen(PROJECTS, calling("POST platform/projects", ONE, fields=NEW), "POST"),
    Screen(ONE, _show),
    Screen(ONE + "/settings", _settings),
    Screen(ONE + "/versions", _versions),
    Screen(ONE + "/env/{name}", calling(f"DELETE {_PROJECT}/env/{{name}}", _settings), "DELETE"),
    *actions(
        ONE,
        {
            "files": _save,
            "sync": calling(f"POST {_PROJECT}/sync", _show),
            "stop": calling(f"DELETE {_PROJECT}/sandbox", _show),
            "settings": calling(f"PATCH {_PROJECT}", _settings, fields=CHANGED),
            "versions/{version}/restore": calling(
                f"POST {_PROJECT}/versions/{{version}}/restore", ONE + "/versions", {}
            ),
            "versions/remove": _remove_versions,
            "publish": calling(f"POST {_PROJECT}/publish", _settings, fields=PUBLISHED),
            "unpublish": calling(f"DELETE {_PROJECT}/publish", _settings),
            "archive": calling(f"POST {_PROJECT}/archive", _settings),
            "unarchive": calling(f"POST {_PROJECT}/unarchive", _settings),
            "default": calling(f"POST {_PROJECT}/make-default", _settings),
            "delete": calling(f"DELETE {_PROJECT}", PROJECTS),
            "env": calling(f"PUT {_PROJECT}/env/{{name}}", _settings, fields=VARIABLE),
            "share": calling(
                f"POST {_PROJECT}/tokens", _settings, fields={"minutes": WHOLE}, shown="link"
            ),
        },
    ),
)
