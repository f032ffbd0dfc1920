"""A collector for the tests: takes OTLP over HTTP and decodes it as OpenTelemetry defines it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_WAIT_SEC = 60


@dataclass(frozen=True)
class ReceivedSpan:
    trace_id: str
    span_id: str
    parent_id: str
    name: str
    events: tuple[str, ...]
    attributes: dict[str, str | int]
    is_error: bool


@dataclass
class Collector:
    """`spans` are what has come, `headers` those of the last request; so many first requests are
    answered by what is not HTTP."""

    url: str = ""
    garbled: int = 0
    spans: list[ReceivedSpan] = field(default_factory=list)
    services: set[str] = field(default_factory=set)
    headers: dict[str, str] = field(default_factory=dict)
    _came: threading.Condition = field(default_factory=threading.Condition)

    def find(self, trace_id: str, name: str, parent_id: str) -> ReceivedSpan | None:
        return next(
            (
                span
                for span in self.spans
                if (span.trace_id, span.name, span.parent_id) == (trace_id, name, parent_id)
            ),
            None,
        )

    def get(self, trace_id: str, name: str, *, under: str) -> ReceivedSpan:
        """The span of this name below that one, once it has come."""
        self.wait_for(lambda: self.find(trace_id, name, under) is not None)
        span = self.find(trace_id, name, under)
        assert span is not None
        return span

    def wait_for(self, is_there: Callable[[], bool]) -> None:
        with self._came:
            assert self._came.wait_for(is_there, _WAIT_SEC), self.spans

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._came:
            self.headers = headers
            assert path == "/v1/traces"
            self._take_traces(ExportTraceServiceRequest.FromString(body))
            self._came.notify_all()

    def is_garbling(self) -> bool:
        with self._came:
            is_garbling = self.garbled > 0
            self.garbled -= is_garbling
            self._came.notify_all()
            return is_garbling

    def _take_traces(self, sent: Any) -> None:
        for resource in sent.resource_spans:
            self.services.add(str(_attributes(resource.resource)["service.name"]))
            self.spans += [_span(each) for scope in resource.scope_spans for each in scope.spans]


def _span(sent: Any) -> ReceivedSpan:
    return ReceivedSpan(
        sent.trace_id.hex(),
        sent.span_id.hex(),
        sent.parent_span_id.hex(),
        sent.name,
        tuple(each.name for each in sent.events),
        _attributes(sent),
        sent.status.code == sent.status.STATUS_CODE_ERROR,
    )


def _attributes(sent: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in sent.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if collector.is_garbling():
                self.close_connection = True
                self.wfile.write(b"no such protocol\r\n\r\n")
                return
            collector.take(self.path, dict(self.headers.items()), body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        collector.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
