"""Exports traces to a collector, for the life of a process. Metrics are scraped from `/metrics`."""

import asyncio
from contextlib import AsyncExitStack
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sandyard import __version__
from sandyard.kit import ids
from sandyard.kit.observability import tracing
from sandyard.settings import OtelSettings, SettingsError

if TYPE_CHECKING:  # imported only if a collector is configured
    from sandyard.kit.observability.tracing_otel import OtelTracing

_EXPORT_SEC = 3
"""The limit for one export, and so the longest that an absent collector delays shutdown."""


async def open_tracing(stack: AsyncExitStack, settings: OtelSettings) -> "OtelTracing | None":
    """Like `start_tracing`, until the stack is closed."""
    started = start_tracing(settings)
    if started is not None:
        stack.push_async_callback(asyncio.to_thread, started.close)
        stack.callback(tracing.start, None)
    return started


def start_tracing(settings: OtelSettings) -> "OtelTracing | None":
    """Trace everything built from now on. None if no collector is configured. Raises SettingsError
    if the SDK is not installed."""
    if settings.otel_exporter_otlp_endpoint is None:
        return None
    if find_spec("opentelemetry") is None or find_spec("opentelemetry.sdk") is None:
        raise SettingsError("OTEL_EXPORTER_OTLP_ENDPOINT: needs `pip install sandyard[otel]`")
    started = _tracing(settings, settings.otel_exporter_otlp_endpoint.rstrip("/"))
    tracing.start(started)
    return started


def _tracing(settings: OtelSettings, endpoint: str) -> "OtelTracing":
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON
    from opentelemetry.util.re import parse_env_headers

    from sandyard.kit.observability.tracing_otel import OtelTracing

    resource = Resource.create(
        {
            "service.name": settings.otel_service_name,
            "service.version": __version__,
            "service.instance.id": ids.holder_id(),
        }
    )
    headers = settings.otel_exporter_otlp_headers
    text = "" if headers is None else headers.get_secret_value()
    exporter = OTLPSpanExporter(
        endpoint=f"{endpoint}/v1/traces",
        headers=parse_env_headers(text, liberal=True),
        timeout=_EXPORT_SEC,
    )
    provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OtelTracing(provider, ratio=settings.otel_traces_sampler_arg)
