"""The HTTP application: every part's routes behind one middleware and one error format."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from sandyard import __version__
from sandyard.entrypoints.http.answers import BodyLimits, ErrorResponses
from sandyard.entrypoints.http.docs_page import create_bare_app
from sandyard.entrypoints.http.errors import install_error_handlers
from sandyard.entrypoints.http.hosted import HostedApps
from sandyard.entrypoints.http.literal_paths import with_closed_paths
from sandyard.entrypoints.http.middleware import (
    Applications,
    InFlight,
    RequestMetrics,
    RequestMiddleware,
)
from sandyard.entrypoints.http.openapi import openapi_document
from sandyard.entrypoints.http.operations import MetricsAccess, create_operations_router
from sandyard.entrypoints.http.query_parameters import refuse_unknown_parameters
from sandyard.entrypoints.http.websockets import WebSocketErrors
from sandyard.kit import ids
from sandyard.kit.http.direct import DirectRoute, DirectRoutes, JsonResponse
from sandyard.kit.http.routes import StreamedRoute
from sandyard.settings import ServerSettings, Settings
from sandyard.wiring.part import Part, Readiness

_DOCUMENT = "/openapi.json"
_OF_ALL_PARTS = (_DOCUMENT, "/metrics")
"""Paths that cover all parts, and so wait for all."""
_CORS: Mapping[str, Any] = {
    "allow_methods": ["GET", "POST", "PUT", "PATCH", "DELETE"],
    "allow_headers": ["Authorization", "Content-Type", "X-API-Key", "X-Request-ID"],
    "expose_headers": ["Date", "Retry-After", "X-Request-ID"],
}


def create_app(
    settings: Settings,
    parts: Sequence[Part],
    *,
    registry: CollectorRegistry,
    in_flight: InFlight,
    is_exposed: bool = False,
    awaited: Sequence[Readiness] = (),
    requests: RequestMetrics | None = None,
) -> FastAPI:
    """`is_exposed`: reachable from other machines, so that `/metrics` needs a token.

    `awaited` are parts that will be added later: requests for anything but `parts` wait until the
    application is `complete`. `requests` are the metrics of an application that this one completes.
    """
    app = create_bare_app(
        title="Sandyard",
        version=__version__,
        summary="One control plane for short-lived environments.",
    )
    metrics = MetricsAccess(settings.secret("metrics_token"), is_open=not is_exposed)
    operations = create_operations_router(parts, registry, in_flight, metrics, awaited)
    hosted = HostedApps(settings, parts)
    routes = [_document_route(app), *_routes(parts, operations, hosted.routers)]
    apps = _api(app, routes, settings.server)
    apps = replace(apps, hosted=hosted.apps(apps.call_api))
    if awaited:
        apps = replace(apps, early=_are_for(routes, hosted))
    app.state.hosted = hosted
    app.middleware_stack = RequestMiddleware(
        apps,
        metrics=requests or RequestMetrics(registry),
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


def _api(app: FastAPI, routes: Sequence[BaseRoute], settings: ServerSettings) -> Applications:
    """Adds the routes and their middleware to the application."""
    with_limits = partial(ErrorResponses, limits=_body_limits(settings))
    streamed = [route for route in routes if isinstance(route, StreamedRoute)]
    app.add_middleware(with_limits, streamed=streamed)
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
    return Applications(app, api, direct, with_limits(direct), WebSocketErrors(api))


def _are_for(routes: Sequence[BaseRoute], hosted: HostedApps) -> Callable[[Scope], bool]:
    """Matches requests for these routes that are neither for hosted applications nor about all
    parts."""
    own = [each for each in routes if isinstance(each, Route) and each.path not in _OF_ALL_PARTS]

    def are_for(scope: Scope) -> bool:
        if hosted.have_host_of(scope):
            return False
        return any(route.matches(scope)[0] is Match.FULL for route in own)

    return are_for


async def prepare_on_demand(app: FastAPI) -> None:
    """Build what `create_app` deferred: nothing that a server needs for its first responses."""
    await app.state.hosted.prepare()


def _body_limits(settings: ServerSettings) -> BodyLimits:
    return BodyLimits(
        settings.max_body_bytes,
        settings.body_timeout_sec,
        settings.max_upload_bytes,
        settings.upload_timeout_sec,
    )


def _document_route(app: FastAPI) -> BaseRoute:
    """The OpenAPI document, constant for the life of the process. Building it takes a while; other
    requests are not blocked."""
    making = asyncio.Lock()

    @cache
    def encoded() -> bytes:
        return orjson.dumps(app.openapi())

    async def get_document(_request: Request) -> Response:
        async with making:
            return JsonResponse(await asyncio.to_thread(encoded))

    return DirectRoute(_DOCUMENT, get_document, methods=["GET"], include_in_schema=False)


def entry_of(app: FastAPI) -> RequestMiddleware:
    """The outermost middleware, which a server calls directly. FastAPI's own entry looks through
    the environment for each request."""
    outermost = app.middleware_stack
    assert isinstance(outermost, RequestMiddleware)  # noqa: S101 - `create_app` has built it
    return outermost
