"""The pages that the console has, so that no list of a test forgets one."""

from collections.abc import Iterable

from starlette.responses import Response
from starlette.routing import Match, Route

from sandyard.bootstrap.console import SCREENS

PARTS_OF_PAGES = {
    *("/", "/console/login/oidc", "/console/login/oidc/callback"),
    *("/console/labs/charts/{chart}", "/console/account/chart"),
    *("/console/sandboxes/{sandbox_id}/chart", "/console/sandboxes/{sandbox_id}/ports"),
    "/console/sandboxes/{sandbox_id}/files/tree",
    *("/console/devices/{hardware_id}/chart", "/console/devices/{hardware_id}/gaps"),
}
"""What is only seen on a page, or leads to one."""


async def _never(_request: object) -> Response:
    raise AssertionError("the route only matches paths")


_READ = [each.path for each in SCREENS if each.method == "GET"]
_ROUTES = [Route(path, _never, methods=["GET"]) for path in _READ]


def forgotten_pages(paths: Iterable[str]) -> set[str]:
    """Pages that none of these leads to."""
    return set(_READ) - PARTS_OF_PAGES - {_route(each) for each in paths}


def _route(path: str) -> str:
    scope = {"type": "http", "method": "GET", "path": path.partition("?")[0]}
    found = [each.path for each in _ROUTES if each.matches(scope)[0] is Match.FULL]
    return found[0] if found else ""
