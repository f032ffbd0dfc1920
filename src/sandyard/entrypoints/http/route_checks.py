"""What routes refuse: unknown query parameters, and methods that a literal path does not have."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, partial
from urllib.parse import parse_qsl

from fastapi import params
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from sandyard.kit.errors import RepeatedQueryParameterError, UnknownQueryParameterError

_SHOWN = 10
_SHOWN_CHARACTERS = 64


def refuse_unknown_parameters(route: APIRoute) -> None:
    """Make the route check the names in a query string before anything else. Done once for a route
    that is in two applications."""
    if "handle" in vars(route):
        return
    handle = route.handle
    accepted = cache(partial(accepted_parameters, route))

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"] and scope["method"] in (route.methods or ()):
            require_known_parameters(scope["query_string"], accepted=accepted())
        await handle(scope, receive, send)

    route.handle = checked  # type: ignore[method-assign]


def accepted_parameters(route: APIRoute) -> tuple[str, ...]:
    return tuple(
        field.alias
        for field in get_flat_params(route.dependant)
        if isinstance(field.field_info, params.Query)
    )


def require_known_parameters(query_string: bytes, *, accepted: Sequence[str]) -> None:
    """Raise unless each parameter is one of these and is sent once; no call takes lists."""
    sent = [name for name, _ in parse_qsl(query_string.decode("latin-1"), keep_blank_values=True)]
    unknown = sorted(set(sent).difference(accepted))
    if unknown:
        names = [name[:_SHOWN_CHARACTERS] for name in unknown[:_SHOWN]]
        raise UnknownQueryParameterError(
            f"Unknown query parameter: {', '.join(names)}. "
            f"This call takes {', '.join(accepted) or 'none'}.",
            details={"unknown": names, "accepted": list(accepted)},
        )
    repeated = sorted(name for name, times in Counter(sent).items() if times > 1)
    if repeated:
        raise RepeatedQueryParameterError(
            f"Sent more than once: {', '.join(repeated)}. Send each query parameter once.",
            details={"repeated": repeated},
        )


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
