"""The Broker's jobs with their last and next runs, its provider, and the queue."""

import asyncio

from starlette.responses import Response

from sandyard.console.app import ConsoleRequest, Screen
from sandyard.console.screens.labs import LABS

JOBS = LABS + "/jobs"
WAITING = LABS + "/waiting"


def _path(request: ConsoleRequest, tail: str) -> str:
    return f"{request.api.paths.broker}/admin/{tail}"


async def _show(request: ConsoleRequest) -> Response:
    api = request.api
    jobs, provider = await asyncio.gather(
        api.get(_path(request, "jobs")), api.get(_path(request, "provider"))
    )
    return request.page("lab_jobs.html", jobs=jobs["jobs"], provider=provider)


async def _run(request: ConsoleRequest) -> Response:
    job = request.path_params["job"]
    done = await request.api.post(_path(request, f"jobs/{job}/run"))
    return request.page("_counts.html", title=done["job"], counts=done["counts"])


async def _show_waiting(request: ConsoleRequest) -> Response:
    cursor = request.query.get("cursor")
    page = await request.api.get(_path(request, "queue"), limit=50, cursor=cursor)
    return request.page(
        "lab_waiting.html", waiting=page["tickets"], next_cursor=page["next_cursor"]
    )


SCREENS = (
    Screen(JOBS, _show, for_operators=True, is_shared=True),
    Screen(JOBS + "/{job}", _run, methods=("POST",), for_operators=True),
    Screen(WAITING, _show_waiting, for_operators=True, is_shared=True),
)
