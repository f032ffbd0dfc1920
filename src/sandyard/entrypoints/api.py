"""The HTTP application: every part's routes behind one middleware and one error shape."""

import asyncio
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from prometheus_client import CollectorRegistry

from sandyard import __version__
from sandyard.bootstrap import BrokerPart
from sandyard.broker.http.admin import ADMIN_TOKEN, create_admin_router
from sandyard.broker.http.router import TRACK_TOKEN, create_track_router
from sandyard.entrypoints.errors import install_error_handlers
from sandyard.entrypoints.middleware import InFlight, RequestMetrics, RequestMiddleware
from sandyard.kit import ids
from sandyard.kit.errors import UnavailableError
from sandyard.kit.http import BearerGuard, errors
from sandyard.kit.metrics import CONTENT_TYPE, render
from sandyard.settings import Settings, tokens

_CHECK_SEC = 2


def create_app(
    settings: Settings,
    broker: BrokerPart,
    *,
    registry: CollectorRegistry,
    in_flight: InFlight,
) -> FastAPI:
    app = FastAPIOffline(  # /docs works without the internet too
        docs_url="/docs",
        redoc_url=None,
        static_url="/docs-assets",
        redirect_slashes=False,
        title="Sandyard",
        version=__version__,
        summary="One control plane for short-lived environments.",
    )
    app.add_middleware(
        RequestMiddleware,
        metrics=RequestMetrics(registry),
        in_flight=in_flight,
        make_request_id=ids.request_id,
        send_request_id=settings.server.enable_request_id,
        max_body_bytes=settings.server.max_body_bytes,
    )
    install_error_handlers(app)
    base = settings.broker.api_base_path
    tracks = BearerGuard(tokens(settings.broker.broker_api_token))
    admins = BearerGuard(tokens(settings.broker.broker_admin_token))
    routers = (
        create_track_router(broker.broker, tracks, prefix=base),
        create_operations_router(broker, registry, in_flight),
        create_admin_router(broker.broker, broker.jobs, admins, prefix=base),
    )
    # One flat list, the busiest first: an included router is matched again for every request.
    app.router.routes[:0] = [route for router in routers for route in router.routes]
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def create_operations_router(
    broker: BrokerPart, registry: CollectorRegistry, in_flight: InFlight
) -> APIRouter:
    """Alive, ready, and measured: the calls that load balancers and Prometheus make."""
    router = APIRouter(tags=["operations"])

    async def healthz() -> Response:
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readyz() -> Response:
        if in_flight.draining:
            raise UnavailableError("This process is stopping. Use another.", retry_after=1)
        try:
            async with asyncio.timeout(_CHECK_SEC):
                await broker.pool.store.check()
        except (UnavailableError, TimeoutError) as error:
            raise UnavailableError(
                f"Not ready: the broker's {broker.pool.engine} engine. "
                + (error.message if isinstance(error, UnavailableError) else "It does not answer."),
                details={"engine": broker.pool.engine, "part": "broker"},
                reason=getattr(error, "reason", None),
            ) from error
        return Response(b'{"status":"ready"}', media_type="application/json")

    async def metrics() -> Response:
        return await metrics_response(broker, registry)

    ok: dict[str, Any] = {"content": {"application/json": {"schema": _STATUS}}}
    text: dict[str, Any] = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    for path, call, summary, answers in (
        ("/healthz", healthz, "Is the process alive?", {200: ok, **errors()}),
        ("/readyz", readyz, "Do its engines answer?", {200: ok, **errors(503)}),
        ("/metrics", metrics, "Prometheus metrics", {200: text, **errors()}),
    ):
        described: dict[int | str, dict[str, Any]] = {**answers}
        router.add_api_route(
            path, call, summary=summary, responses=described, response_class=Response
        )
    return router


async def metrics_response(broker: BrokerPart, registry: CollectorRegistry) -> Response:
    try:
        async with asyncio.timeout(_CHECK_SEC):
            readings = await broker.gauges()
    except (UnavailableError, TimeoutError):
        readings = {}  # an engine that is away has no counts; a zero would be a lie
    return Response(render(registry, readings), media_type=CONTENT_TYPE)


_STATUS = {
    "type": "object",
    "properties": {"status": {"type": "string"}},
    "required": ["status"],
}


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document without the 422 that it adds to every call: malformed is a 400 here."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        bearer = {"type": "http", "scheme": "bearer"}
        document["components"]["securitySchemes"] = {TRACK_TOKEN: bearer, ADMIN_TOKEN: bearer}
        schemas = document["components"]["schemas"]
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        app.openapi_schema = document
    return app.openapi_schema
