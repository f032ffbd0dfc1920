"""A literal path has only its own methods, even if a path with `{id}` matches it."""

from collections.abc import Iterable, Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route


def with_closed_paths(routes: Sequence[BaseRoute]) -> list[BaseRoute]:
    """The routes, each literal path followed by a route that refuses the methods which otherwise a
    later `{id}` path would accept."""
    known = [route for route in routes if isinstance(route, Route)]
    closed: list[BaseRoute] = []
    for route in routes:
        closed.append(route)
        if isinstance(route, Route) and "{" not in route.path:
            same = [other for other in known if other.path == route.path]
            wider = [other for other in known if _is_wider(other, route.path)]
            foreign = _methods_of(wider) - _methods_of(same)
            if foreign and route is same[-1]:
                closed.append(RefusedMethods(route.path, foreign))
    return closed


class RefusedMethods(Route):
    """Methods that a path does not support."""

    def __init__(self, path: str, methods: set[str]) -> None:
        super().__init__(path, _refuse, methods=sorted(methods), include_in_schema=False)


async def _refuse(_request: Request) -> Response:
    raise HTTPException(405)


def _is_wider(route: Route, path: str) -> bool:
    return "{" in route.path and route.path_regex.match(path) is not None


def _methods_of(routes: Iterable[Route]) -> set[str]:
    return {method for route in routes for method in route.methods or ()}
