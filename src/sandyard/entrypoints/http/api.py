"""The HTTP application: every part's routes behind one middleware and one error format."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Scope

from sandyard import __version__
from sandyard.bootstrap.other_logs import MainProcess
from sandyard.entrypoints.http import middleware
from sandyard.entrypoints.http.answers import ErrorResponses
from sandyard.entrypoints.http.documentation import create_bare_app, joined, openapi_document
from sandyard.entrypoints.http.errors import WebSocketErrors, install_error_handlers
from sandyard.entrypoints.http.forked import run_forked
from sandyard.entrypoints.http.hosted import HostedApps
from sandyard.entrypoints.http.operations import MetricsAccess, create_operations_router
from sandyard.entrypoints.http.other_parts import OtherParts
from sandyard.entrypoints.http.route_checks import refuse_unknown_parameters, with_closed_paths
from sandyard.kit import ids
from sandyard.kit.http.bodies import BodyLimit, BodyLimits
from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.routes import DirectRoute, DirectRoutes, JsonResponse, StreamedRoute
from sandyard.settings import ServerSettings, Settings
from sandyard.wiring.part import Part

_DOCUMENT = "/openapi.json"
_CORS: Mapping[str, Any] = {
    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": [
        *("Authorization", "Content-Type", "Idempotency-Key", "X-API-Key", "X-Request-ID")
    ],
    "expose_headers": ["Date", "Retry-After", "X-Request-ID"],
}


def create_app(
    settings: Settings,
    parts: Sequence[Part],
    *,
    registry: CollectorRegistry,
    in_flight: middleware.InFlight,
    is_exposed: bool = False,
    tenants: OtherParts | None = None,
    main: MainProcess | None = None,
) -> FastAPI:
    """`is_exposed`: reachable from other machines, so that `/metrics` needs a token.

    With two processes, the main process's application knows `tenants`, the parts of the other
    one; the tenants' application knows the `main` process.
    """
    app = create_bare_app(
        title="Sandyard",
        version=__version__,
        summary="One control plane for short-lived environments.",
    )
    tokens = settings.secret("metrics_token") if main is None else ()
    metrics = MetricsAccess(tokens, is_open=not is_exposed)
    operations = create_operations_router(
        parts, registry, in_flight, metrics, tenants, is_inner=main is not None
    )
    hosted = HostedApps(settings, parts, main=main)
    routes = [_document_route(app, tenants), *_routes(parts, operations, hosted.routers)]
    apps = _api(app, routes, settings.server)
    if tenants is None:
        apps = replace(apps, hosted=hosted.apps(apps.call_api))
    else:
        apps = replace(apps, hosted=(tenants.unavailable,))
    app.state.hosted = hosted
    app.middleware_stack = middleware.RequestMiddleware(
        apps,
        metrics=middleware.RequestMetrics(registry),
        in_flight=in_flight,
        make_request_id=ids.request_id,
        send_request_id=settings.server.enable_request_id,
    )
    app.openapi = lambda: openapi_document(app)  # type: ignore[method-assign]
    return app


def _routes(
    parts: Sequence[Part], operations: APIRouter, hosted: Sequence[APIRouter]
) -> list[BaseRoute]:
    """One flat list, busiest first: an included router would be matched again for every request."""
    busiest = [part.routers[0] for part in parts]
    others = [router for part in parts for router in part.routers[1:]]
    return [route for each in (*busiest, operations, *others, *hosted) for route in each.routes]


def _api(
    app: FastAPI, routes: Sequence[BaseRoute], settings: ServerSettings
) -> middleware.Applications:
    app.add_middleware(ErrorResponses, limits=_body_limits(settings, routes))
    if settings.allowed_origins:
        app.add_middleware(CORSMiddleware, allow_origins=settings.allowed_origins, **_CORS)
    install_error_handlers(app)
    for route in routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            refuse_unknown_parameters(route)
    app.router.routes[:0] = with_closed_paths(routes)
    # Cross-origin browsers need headers that only the ordinary path adds.
    direct = DirectRoutes(routes, with_origin=not settings.allowed_origins)
    api = app.build_middleware_stack()
    limits = _body_limits(settings)
    return middleware.Applications(
        app, api, direct, ErrorResponses(direct, limits=limits), WebSocketErrors(api)
    )


def _body_limits(settings: ServerSettings, routes: Sequence[BaseRoute] = ()) -> BodyLimits:
    return BodyLimits(
        BodyLimit(settings.max_body_bytes, settings.body_timeout_sec),
        streamed=BodyLimit(
            settings.max_upload_bytes, settings.upload_timeout_sec, is_streamed=True
        ),
        streamed_routes=[each for each in routes if isinstance(each, StreamedRoute)],
        open_routes=[each for each in routes if isinstance(each, OnDemandRoute) and each.is_open],
    )


async def prepare_on_demand(app: FastAPI) -> None:
    """Build what `create_app` deferred: nothing that a server needs for its first responses."""
    await app.state.hosted.prepare()


def _document_route(app: FastAPI, others: OtherParts | None) -> BaseRoute:
    """The OpenAPI document, constant for the life of the process. It is built when it is first
    requested, in a copy of the process: claims do not wait for it."""
    making = asyncio.Lock()
    made: list[bytes] = []

    async def get_document(_request: Request) -> Response:
        async with making:
            if not made:
                theirs = None if others is None else await others.document()
                made.append(await run_forked(partial(_document, app, theirs)))
            return JsonResponse(made[0])

    return DirectRoute(_DOCUMENT, get_document, methods=["GET"], include_in_schema=False)


def _document(app: FastAPI, others: bytes | None) -> bytes:
    own = app.openapi()
    return orjson.dumps(own if others is None else joined(own, orjson.loads(others)))


def own_requests(app: FastAPI) -> Callable[[Scope], bool]:
    """Matches requests for paths of this application that name no host of a sandbox."""
    routes = [each for each in app.router.routes if isinstance(each, Route | Mount)]
    literal = {route.path for route in routes if isinstance(route, Route) and "{" not in route.path}
    patterns = [route.path_regex for route in routes if route.path not in literal]
    hosted: HostedApps = app.state.hosted

    def are_own(scope: Scope) -> bool:
        path = scope["path"]
        if path not in literal and not any(pattern.match(path) for pattern in patterns):
            return False
        return not hosted.have_host_of(scope)

    return are_own


def entry_of(app: FastAPI) -> middleware.RequestMiddleware:
    """The outermost middleware, which a server calls directly. FastAPI's own entry looks through
    the environment for each request."""
    outermost = app.middleware_stack
    assert isinstance(outermost, middleware.RequestMiddleware)  # noqa: S101 - `create_app` has built it
    return outermost
