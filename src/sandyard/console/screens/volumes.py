"""Volumes: the list, with what has them mounted; new ones, copies and sizes."""

import asyncio

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen, calling
from sandyard.console.forms import FLAG, NUMBER, TEXT

VOLUMES = "/console/volumes"
_VOLUME = "platform/volumes/{volume_id}"
NEW = {
    **dict.fromkeys(("name", "project_id", "copy_of"), TEXT),
    "size_gb": NUMBER,
    "read_only": FLAG,
}


async def _list(request: ConsoleRequest) -> Response:
    listed, projects = await asyncio.gather(
        request.api.get("platform/volumes", limit=50, cursor=request.query.get("cursor")),
        request.api.get("platform/projects", limit=100),
    )
    active = [each for each in projects["projects"] if each["status"] == "active"]
    return request.page("volumes.html", **listed, projects=active)


SCREENS = (
    Screen(VOLUMES, _list),
    Screen(VOLUMES, calling("POST platform/volumes", _list, fields=NEW), "POST"),
    Screen(
        VOLUMES + "/{volume_id}/size",
        calling(f"PATCH {_VOLUME}", _list, fields={"size_gb": NUMBER}),
        "POST",
    ),
    Screen(VOLUMES + "/{volume_id}", calling(f"DELETE {_VOLUME}", _list), "DELETE"),
)
