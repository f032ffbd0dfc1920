"""Telemetry as a Lambda function, behind API Gateway's HTTP API or a function URL.

The function's handler is `sandyard.entrypoints.aws_lambda.handler`; it is set up on the first
event, from the same settings as a server. It needs a shared engine, as its process does not last.
"""

import asyncio
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from mangum import Mangum
from starlette.types import Receive, Scope, Send

from sandyard.bootstrap.registry import embedded_parts
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.data_dir import with_secrets
from sandyard.entrypoints.server.otlp import start_tracing
from sandyard.kit.observability.log import configure_logging
from sandyard.kit.observability.metrics import new_registry
from sandyard.settings import SettingsError, load_settings
from sandyard.telemetry.wiring.part import TelemetryPart

if TYPE_CHECKING:  # imported only if a collector is configured
    from sandyard.kit.observability.tracing_otel import OtelTracing


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Handle one event. Its spans are sent before the response: after it, AWS suspends the process
    until the next event."""
    application, tracing = _function()
    try:
        return application(event, context)
    finally:
        if tracing is not None:
            tracing.flush()


@cache
def _function() -> "tuple[Mangum, OtelTracing | None]":
    settings = load_settings().only("telemetry")
    if embedded_parts(settings):
        raise SettingsError("TELEMETRY_STORE: must be dynamodb, or DATABASE_URL must be set")
    configure_logging(settings.server.log_level, settings.server.log_format)
    nowhere = Path(gettempdir())  # a shared engine stores nothing in a data dir
    settings = with_secrets(settings, nowhere)
    asyncio.set_event_loop(asyncio.new_event_loop())  # one for all events, as connections require
    registry = new_registry()
    tracing = start_tracing(settings.otel)
    telemetry = TelemetryPart(settings, data_dir=nowhere, registry=registry)
    app = create_app(
        settings, [telemetry], registry=registry, in_flight=InFlight(), is_exposed=True
    )
    answer = app if tracing is None else tracing.app(app)

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope, receive, send)

    return Mangum(application, lifespan="off"), tracing
