"""Templates: the list, one with its fields; and the images that they may use."""

import asyncio

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen, calling
from sandyard.console.forms import (
    ANY_WORDS,
    FLAG,
    NUMBER,
    TEXT,
    TEXT_OR_NONE,
    WHOLE,
    WORDS,
)
from sandyard.console.screens.sandboxes import NETWORKS

TEMPLATES = "/console/templates"
ONE = TEMPLATES + "/{template_id}"
IMAGES = TEMPLATES + "/images"
_TEMPLATE = "platform/templates/{template_id}"
_NULLABLE = (
    *("description", "network", "environment", "isolation"),
    *("repository_ref", "repository_folder", "repository_secret"),
)
_FIELDS = {
    **dict.fromkeys(("name", "category", "language", "repository_url"), TEXT),
    **dict.fromkeys(("min_cpu_required", "min_memory_required"), NUMBER),
    "is_public": FLAG,
    "warm_machines": WHOLE,
}
NEW = {**_FIELDS, **dict.fromkeys(_NULLABLE, TEXT), "tags": WORDS, "is_official": FLAG}
CHANGED = {**_FIELDS, **dict.fromkeys(_NULLABLE, TEXT_OR_NONE), "tags": ANY_WORDS}
IMAGE = dict.fromkeys(("reference", "project_id", "secret"), TEXT)


async def _list(request: ConsoleRequest) -> Response:
    filters = request.filters("q", "visibility", "cursor")
    listed, images, projects = await asyncio.gather(
        request.api.get("platform/templates", limit=50, sort="name", **filters),
        request.api.get("platform/images", limit=100),
        request.api.get("platform/projects", limit=100),
    )
    filters.pop("cursor", None)
    return request.page(
        "templates.html",
        **listed,
        filters=filters,
        images=images["images"],
        projects=projects["projects"],
        networks=NETWORKS,
    )


async def _show(request: ConsoleRequest) -> Response:
    template, images = await asyncio.gather(
        request.api.get(_TEMPLATE), request.api.get("platform/images", limit=100)
    )
    return request.page(
        "template.html", template=template, images=images["images"], networks=NETWORKS
    )


SCREENS = (
    Screen(TEMPLATES, _list),
    Screen(TEMPLATES, calling("POST platform/templates", ONE, fields=NEW), "POST"),
    Screen(IMAGES, calling("POST platform/images", TEMPLATES, fields=IMAGE), "POST"),
    Screen(IMAGES + "/{image_id}", calling("DELETE platform/images/{image_id}", _list), "DELETE"),
    Screen(ONE, _show),
    Screen(ONE, calling(f"PATCH {_TEMPLATE}", ONE, fields=CHANGED), "POST"),
    Screen(ONE + "/delete", calling(f"DELETE {_TEMPLATE}", TEMPLATES), "POST"),
)
