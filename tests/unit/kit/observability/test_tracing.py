"""What is read from `traceparent`, and what becomes a span."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.types import Message, Receive, Scope, Send

from sandyard.kit.observability import tracing
from sandyard.kit.observability.tracing import About, TraceParent, Written, parse_traceparent
from sandyard.kit.observability.tracing_otel import OtelTracing

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "is_sampled"), [("01", True), ("00", False), ("03", True)])
def test_a_caller_is_read(flags: str, is_sampled: bool) -> None:
    value = f"00-{TRACE}-{CALLER}-{flags}".encode()
    assert parse_traceparent(value) == TraceParent(TRACE, CALLER, is_sampled)


def test_a_later_version_may_say_more() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{CALLER}-01-more".encode()) is not None


@pytest.mark.parametrize(
    "value",
    [
        "",
        f"00-{TRACE}-{CALLER}",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01-more",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{CALLER}-01\n",
    ],
)
def test_what_is_malformed_is_nobody(value: str) -> None:
    assert parse_traceparent(value.encode()) is None


class Store:
    name = "store"

    async def write(self, word: str) -> str:
        if word == "secret":
            raise ValueError(word)
        return word

    async def close(self) -> None:
        pass


class Sink:
    async def send(self, word: str) -> None:
        pass


ABOUT = About(
    "store",
    calls=frozenset({"write"}),
    written={"write": lambda arguments, result: [Written(f"{result}.written", arguments[0])]},
)
DELIVERY = About("sink", follows=lambda arguments: arguments[0])


class Traced:
    """A store behind the tracing that all of a process is behind, and what was recorded."""

    def __init__(self, ratio: float = 1) -> None:
        self._kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._kept))
        self.tracing = OtelTracing(provider, ratio=ratio)
        self.store = self.tracing.port(Store(), ABOUT)

    async def call(self, answer: Any, traceparent: str | None = None) -> None:
        """A request to an application that awaits this."""

        async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
            await answer()
            scope["state"] = {"status": 200}

        headers = [] if traceparent is None else [(b"traceparent", traceparent.encode())]
        scope = {"type": "http", "method": "GET", "headers": headers}
        await self.tracing.app(app)(scope, _nothing, _nowhere)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._kept.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


async def _nothing() -> Message:
    return {"type": "http.request"}


async def _nowhere(_message: Message) -> None:
    pass


async def test_a_call_inside_a_request_is_a_span_of_its_trace() -> None:
    traced = Traced()
    await traced.call(lambda: traced.store.write("word"))
    inner, outer = traced.spans
    assert (inner.name, outer.name) == ("store.write", "GET unmatched")
    assert inner.parent is not None
    assert inner.parent.span_id == outer.context.span_id
    assert [event.name for event in inner.events] == ["word.written"]


async def test_a_call_outside_of_one_is_none() -> None:
    traced = Traced()
    assert await traced.store.write("word") == "word"
    assert traced.names == []


async def test_only_the_calls_that_are_named_are_spans() -> None:
    traced = Traced()
    await traced.call(traced.store.close)
    assert traced.names == ["GET unmatched"]
    assert traced.store.name == "store"


async def test_nothing_is_sampled_at_0_but_what_a_caller_wants() -> None:
    traced = Traced(ratio=0)
    await traced.call(lambda: traced.store.write("word"))
    await traced.call(lambda: traced.store.write("word"), f"00-{TRACE}-{CALLER}-00")
    assert traced.names == []
    await traced.call(lambda: traced.store.write("word"), f"00-{TRACE}-{CALLER}-01")
    assert {f"{span.context.trace_id:032x}" for span in traced.spans} == {TRACE}


async def test_a_failure_is_told_by_its_class_alone() -> None:
    traced = Traced()
    with pytest.raises(ValueError, match="secret"):
        await traced.call(lambda: traced.store.write("secret"))
    for span in traced.spans:
        assert span.attributes is not None
        assert span.attributes["error.type"] == "ValueError"
        assert not span.status.is_ok
        assert "secret" not in span.to_json()


async def test_a_task_that_outlives_its_request_is_not_of_its_trace() -> None:
    traced = Traced()
    answered = asyncio.Event()
    tasks = []

    async def later() -> None:
        await answered.wait()
        await traced.store.write("word")

    async def answer() -> None:
        tasks.append(asyncio.create_task(later()))

    await traced.call(answer)
    answered.set()
    await tasks[0]
    assert traced.names == ["GET unmatched"]


async def test_a_handshake_is_a_trace_and_what_follows_it_is_not() -> None:
    traced = Traced()
    sent: list[Message] = []

    async def terminal(scope: Scope, _receive: Receive, send: Send) -> None:
        await traced.store.write("session")
        scope["state"] = {"status": 101}
        await send({"type": "websocket.accept"})
        assert traced.names == ["store.write", "GET unmatched"]
        await traced.store.write("key")
        await send({"type": "websocket.send", "text": "echo"})
        raise ConnectionError

    async def keep(message: Message) -> None:
        sent.append(message)

    scope: Scope = {"type": "websocket", "headers": []}
    with pytest.raises(ConnectionError):
        await traced.tracing.app(terminal)(scope, _nothing, keep)
    assert [each["type"] for each in sent] == ["websocket.accept", "websocket.send"]
    session, handshake = traced.spans
    assert session.parent is not None
    assert session.parent.span_id == handshake.context.span_id
    assert handshake.attributes is not None
    assert handshake.attributes["http.response.status_code"] == 101
    assert "error.type" not in handshake.attributes


async def test_a_handshake_that_fails_is_told() -> None:
    traced = Traced()

    async def broken(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise LookupError

    scope: Scope = {"type": "websocket", "headers": []}
    with pytest.raises(LookupError):
        await traced.tracing.app(broken)(scope, _nothing, _nowhere)
    [handshake] = traced.spans
    assert handshake.attributes is not None
    assert handshake.attributes["error.type"] == "LookupError"


async def test_a_delivery_belongs_to_the_trace_that_wrote_the_event() -> None:
    traced = Traced()
    sink = traced.tracing.port(Sink(), DELIVERY)
    await traced.call(lambda: traced.store.write("word"))
    await sink.send("word")
    await sink.send("another")
    written, _, delivered = traced.spans
    assert delivered.name == "sink.send"
    assert delivered.parent is not None
    assert delivered.parent.span_id == written.context.span_id


async def test_a_job_begins_a_trace_or_belongs_to_the_call_that_runs_it() -> None:
    traced = Traced()
    run = traced.tracing.job("sync", lambda: traced.store.write("word"))
    await run()
    await traced.call(run)
    assert traced.names == ["store.write", "job sync", "store.write", "job sync", "GET unmatched"]
    assert traced.spans[1].parent is None
    assert traced.spans[3].parent is not None


async def test_an_outgoing_request_names_its_span() -> None:
    traced = Traced()
    sent: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200)

    hooks = {"request": [*traced.tracing.request_hooks()]}
    async with httpx.AsyncClient(
        transport=httpx.MockTransport(answer), event_hooks=hooks
    ) as client:
        await traced.call(lambda: client.get("http://provider"))
        await client.get("http://provider")
    found = parse_traceparent(sent[0].headers["traceparent"].encode())
    about = traced.spans[0].context
    trace_id, span_id = f"{about.trace_id:032x}", f"{about.span_id:016x}"
    assert found == TraceParent(trace_id, span_id, is_sampled=True)
    assert "traceparent" not in sent[1].headers


def test_while_it_is_off_everything_is_left_as_it_is() -> None:
    store = Store()
    assert tracing.traced(store, ABOUT) is store
    assert tracing.traced_job("sync", store.close) == store.close
    assert tracing.request_hooks() == {}
