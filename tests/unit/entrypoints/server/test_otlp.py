"""Traces go on after a failure that nobody expects of a collector."""

import pytest
from starlette.types import Message, Receive, Scope, Send

from sandyard.entrypoints.server.otlp import start_tracing
from sandyard.kit.observability import tracing
from sandyard.settings import OtelSettings
from tests.support.services.otlp_collector import collecting


async def _app(scope: Scope, _receive: Receive, _send: Send) -> None:
    scope["state"] = {"status": 200}


async def _receive() -> Message:
    return {"type": "http.request"}


async def _send(_message: Message) -> None:
    pass


async def test_a_garbled_answer_does_not_end_the_export(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with collecting() as collector:
        collector.garbled = 2  # an export is tried again once, at once
        settings = OtelSettings(
            otel_exporter_otlp_endpoint=collector.url, otel_traces_sampler_arg=1
        )
        started = start_tracing(settings)
        assert started is not None
        try:
            app = started.app(_app)
            call = {"type": "http", "method": "GET", "headers": []}
            await app({**call}, _receive, _send)
            collector.wait_for(lambda: not collector.garbled)
            await app({**call}, _receive, _send)
            collector.wait_for(lambda: bool(collector.spans))
        finally:
            tracing.start(None)
            started.close()
