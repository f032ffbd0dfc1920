"""Tracing with OpenTelemetry's SDK, sent over OTLP. Imported only if a collector is configured.

An unsampled request costs a check of its headers and one random number; inside it, a port call
costs one read of a context variable. The SDK is called only for sampled ones.
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.status import StatusCode
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.kit.observability.log import log_context
from sandyard.kit.observability.tracing import About, Hook, TraceParent, Written, parse_traceparent

T = TypeVar("T")
R = TypeVar("R")
_MOST_WRITTEN = 10_000
"""The most events of sampled requests whose traces are remembered until delivery."""
_KINDS = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
}


class _Active:
    """An open span; `root` is the first of its trace in this process."""

    __slots__ = ("context", "is_over", "root", "span")

    def __init__(self, span: Span, root: "_Active | None") -> None:
        self.span = span
        self.context = trace.set_span_in_context(span, Context())
        self.root = root or self
        self.is_over = False

    def end(self, error: BaseException | None = None) -> None:
        """At most once. Errors are recorded by class only: messages may contain confidential
        data."""
        if self.is_over:
            return
        self.is_over = True
        if error is not None:
            self.span.set_attribute("error.type", type(error).__name__)
            self.span.set_status(StatusCode.ERROR)
        self.span.end()


_active: ContextVar[_Active | None] = ContextVar("active_span", default=None)


def _current() -> _Active | None:
    """None also in a task that has outlived its request."""
    active = _active.get()
    return None if active is None or active.root.is_over else active


class OtelTracing:
    """`Tracing` of `kit/observability/tracing.py`, and the outermost ASGI application."""

    def __init__(self, provider: TracerProvider, *, ratio: float) -> None:
        """`ratio`: the share of requests and jobs that are traced, unless the caller has
        decided."""
        self._provider = provider
        self._tracer = provider.get_tracer("sandyard")
        self._ratio = ratio
        self._written: OrderedDict[Hashable, Context] = OrderedDict()

    def is_chosen(self) -> bool:
        return random.random() < self._ratio  # noqa: S311 - no secret

    def app(self, app: ASGIApp) -> ASGIApp:
        """The application, with a trace for each sampled request, or a continuation of the
        caller's. For a WebSocket only the handshake is traced: the connection may stay open
        indefinitely."""

        def enter(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
            if scope["type"] in ("http", "websocket"):
                caller = _caller(scope)
                if caller is not None or self.is_chosen():
                    return self._answer(app, caller, scope, receive, send)
            return app(scope, receive, send)

        return enter

    async def _answer(
        self, app: ASGIApp, caller: TraceParent | None, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if caller is not None and not caller.is_sampled:
            with log_context(trace_id=caller.trace_id):
                await app(scope, receive, send)
            return
        context = Context() if caller is None else _remote(caller)
        with self.span(_method(scope), context, SpanKind.SERVER) as active:

            async def send_and_end(message: Message) -> None:
                _describe(active.span, scope)
                active.end()
                await send(message)

            try:
                await app(scope, receive, send if scope["type"] == "http" else send_and_end)
            finally:
                _describe(active.span, scope)

    def port(self, port: T, about: About) -> T:
        return cast("T", _TracedPort(self, port, about))

    def job(self, name: str, run: Callable[[], Awaitable[R]]) -> Callable[[], Awaitable[R]]:
        async def traced_run() -> R:
            parent = _current()
            if parent is None and not self.is_chosen():
                return await run()
            with self.span(f"job {name}", parent or Context(), SpanKind.INTERNAL):
                return await run()

        return traced_run

    def request_hooks(self) -> Sequence[Hook]:
        return (_send_traceparent,)

    @contextmanager
    def span(self, name: str, parent: _Active | Context, kind: SpanKind) -> Iterator[_Active]:
        """A span below an open one, or the first of this process in a trace."""
        if isinstance(parent, _Active):
            span = self._tracer.start_span(name, parent.context, kind)
            with _under_way(_Active(span, parent.root)) as active:
                yield active
            return
        span = self._tracer.start_span(name, parent, kind)
        trace_id = trace.format_trace_id(span.get_span_context().trace_id)
        with log_context(trace_id=trace_id), _under_way(_Active(span, None)) as active:
            yield active

    def remember(self, span: Span, key: Hashable) -> None:
        self._written[key] = trace.set_span_in_context(span, Context())
        if len(self._written) > _MOST_WRITTEN:
            self._written.popitem(last=False)

    def find_written(self, key: Hashable) -> Context | None:
        return self._written.get(key)

    def flush(self) -> None:
        """Send pending spans; waits for the collector, so do not call it on the event loop."""
        self._provider.force_flush()

    def close(self) -> None:
        """The same, at shutdown."""
        self._provider.shutdown()


class _TracedPort:
    """A port whose calls are spans if made inside a trace."""

    def __init__(self, tracing: OtelTracing, port: Any, about: About) -> None:
        self._tracing = tracing
        self._port = port
        self._about = about

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._port, name)
        wanted = self._about.calls
        if not iscoroutinefunction(value) or not (wanted is None or name in wanted):
            return value
        call = self._traced(name, value)
        self.__dict__[name] = call  # cached for later lookups
        return call

    def _traced(self, name: str, function: Callable[..., Awaitable[Any]]) -> Any:
        follows = self._about.follows

        def call(*arguments: Any, **named: Any) -> Awaitable[Any]:
            parent = _current() or (follows and self._tracing.find_written(follows(arguments)))
            if parent:
                return self._call(parent, name, function, arguments, named)
            return function(*arguments, **named)

        return call

    async def _call(
        self,
        parent: _Active | Context,
        name: str,
        function: Callable[..., Awaitable[Any]],
        arguments: Sequence[Any],
        named: dict[str, Any],
    ) -> Any:
        about = self._about
        label = f"{about.name}.{name}" if about.label is None else about.label(arguments)
        with self._tracing.span(label, parent, _KINDS[about.kind]) as active:
            span = active.span
            span.set_attributes(about.attributes or {})
            result = await function(*arguments, **named)
            written = (about.written or {}).get(name, _nothing)
            for event in written(arguments, result):
                span.add_event(event.kind)
                self._tracing.remember(span, event.key)
            return result


def _nothing(_arguments: Sequence[Any], _result: Any) -> Iterable[Written]:
    return ()


@contextmanager
def _under_way(active: _Active) -> Iterator[_Active]:
    token = _active.set(active)
    try:
        yield active
    except BaseException as error:
        active.end(error)
        raise
    finally:
        _active.reset(token)
        active.end()


def _caller(scope: Scope) -> TraceParent | None:
    for name, value in scope["headers"]:
        if name == b"traceparent":
            return parse_traceparent(value)
    return None


def _remote(caller: TraceParent) -> Context:
    context = SpanContext(
        int(caller.trace_id, 16),
        int(caller.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return trace.set_span_in_context(NonRecordingSpan(context), Context())


def _method(scope: Scope) -> str:
    """A WebSocket is requested by GET."""
    return str(scope.get("method", "GET"))


def _describe(span: Span, scope: Scope) -> None:
    """By route, never by path or query: those may contain secrets."""
    if not span.is_recording():
        return
    state, method = scope.get("state", {}), _method(scope)
    route = getattr(scope.get("route"), "path", "unmatched")
    status = state.get("status", 0)
    span.update_name(f"{method} {route}")
    span.set_attributes(dict(_attributes(method, route, status, state.get("request_id"))))
    if status >= 500:
        span.set_status(StatusCode.ERROR)


def _attributes(
    method: str, route: str, status: int, request_id: str | None
) -> Iterable[tuple[str, str | int]]:
    yield "http.request.method", method
    yield "http.route", route
    if status:
        yield "http.response.status_code", status
    if request_id:
        yield "sandyard.request_id", request_id


async def _send_traceparent(request: Any) -> None:
    active = _current()
    if active is not None:
        about = active.span.get_span_context()
        ids = f"{trace.format_trace_id(about.trace_id)}-{trace.format_span_id(about.span_id)}"
        request.headers["traceparent"] = f"00-{ids}-{about.trace_flags:02x}"
