"""A proxy in front of a DynamoDB engine that loses, delays, refuses and ages what passes it."""

import argparse
import asyncio
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from tests.faults.index_lag import WRITES, Ask, IndexHistory, NotUnderstoodError, Wire

_KINDS = ("reset", "throttle", "error", "cancel", "drop", "delay")
_THROTTLED = ("ThrottlingException", "ProvisionedThroughputExceededException")
_TYPE = "com.amazonaws.dynamodb.v20120810#"
_CONTENT = "application/x-amz-json-1.0"


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, until told otherwise; the first six are shares of the calls, 0 to 1."""

    reset: float = 0.0
    """The connection is reset and the engine never hears of the call."""
    throttle: float = 0.0
    error: float = 0.0
    """Status 500, and the engine never hears of the call."""
    cancel: float = 0.0
    """Transactions only: cancelled for a conflict, and the engine never hears of it."""
    drop: float = 0.0
    """The engine carries the call out, and the connection is closed without an answer."""
    delay: float = 0.0
    delay_sec: float = 0.0
    index_lag_sec: float = 0.0
    only: Sequence[str] = ()
    """The actions that faults hit; all, if none is named."""
    times: int | None = None
    """How many faults are still to come (delays apart); None: no end."""

    def changed(self, settings: Mapping[str, Any]) -> "Faults":
        """With these settings applied; ValueError names what makes no sense."""
        known = {each.name for each in fields(self)}
        if unknown := settings.keys() - known:
            raise ValueError(f"no such fault: {', '.join(sorted(unknown))}")
        changed = replace(self, **settings)
        for kind in _KINDS:
            share = getattr(changed, kind)
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ValueError(f"{kind} must be from 0 to 1")
        return changed


@dataclass(slots=True)
class Counts:
    """Calls by action: all that came, and those of them that the engine heard of."""

    arrived: Counter[str] = field(default_factory=Counter)
    forwarded: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)

    def as_json(self) -> dict[str, dict[str, int]]:
        return {each.name: dict(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class _Fate:
    """What one call meets; drawn whole on its arrival, so that the seed decides by order alone."""

    kind: str | None
    delay_sec: float
    throttled_as: str


class FaultProxy:
    """Serves on 127.0.0.1 between `start` and `stop`; no call passes while its gate is shut."""

    def __init__(self, engine_url: str, *, seed: int = 0, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.total = Counts()
        self.since_reset = Counts()
        self.url = ""
        self.in_flight = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.at_drop: Callable[[], None] = lambda: None
        self._engine_url = engine_url
        self._random = random.Random(seed)
        self._history = IndexHistory()
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        self._session: aiohttp.ClientSession | None = None

    async def start(self, port: int = 0) -> None:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def set(self, **settings: Any) -> None:
        """Change some faults; the others stay."""
        self.faults = self.faults.changed(settings)

    def calm(self) -> None:
        """No faults any more; a lag of the index stays."""
        self.faults = Faults(index_lag_sec=self.faults.index_lag_sec)

    def reset_counts(self) -> None:
        self.since_reset = Counts()

    @property
    def calls(self) -> Counter[str]:
        """Calls since the last reset, by action."""
        return self.since_reset.arrived

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.startswith("/_faults"):
            return await self._control(request)
        self.in_flight += 1
        try:
            return await self._meet_fate(request)
        finally:
            self.in_flight -= 1

    async def _meet_fate(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        action = request.headers.get("X-Amz-Target", "").partition(".")[2]
        self._count("arrived", action)
        fate = self._draw(action)
        if fate.delay_sec:
            await asyncio.sleep(fate.delay_sec)
        await self.gate.wait()
        match fate.kind:
            case "reset":
                return _cut(request)
            case "throttle":
                return refusal(400, fate.throttled_as, "slow down")
            case "error":
                return refusal(500, "InternalServerError", "an error that was asked for")
            case "cancel":
                return conflict(len(orjson.loads(body)["TransactItems"]))
        try:
            answer = await self._pass_on(request, action, body)
        except (aiohttp.ClientError, OSError):
            return _cut(request)
        if fate.kind != "drop":
            return answer
        self.at_drop()
        return _cut(request)

    def _draw(self, action: str) -> _Fate:
        faults = self.faults
        rolls = {kind: self._random.random() for kind in _KINDS}
        throttled_as = self._random.choice(_THROTTLED)
        if faults.only and action not in faults.only:
            return _Fate(None, 0.0, throttled_as)
        delay = faults.delay_sec if rolls["delay"] < faults.delay else 0.0
        for kind in _KINDS[:-1]:
            if kind == "cancel" and action != "TransactWriteItems":
                continue
            if rolls[kind] < getattr(faults, kind) and faults.times != 0:
                if faults.times is not None:
                    self.faults = replace(faults, times=faults.times - 1)
                self._count("injected", kind)
                return _Fate(kind, delay, throttled_as)
        return _Fate(None, delay, throttled_as)

    async def _pass_on(self, request: web.BaseRequest, action: str, body: bytes) -> web.Response:
        lag_sec = self.faults.index_lag_sec
        self._count("forwarded", action)
        if lag_sec and action in WRITES:
            recording = self._history.recording(action, orjson.loads(body), self._asker(request))
            async with recording as nothing_changed:
                answer = await self._forward(request, body)
                if answer.status != 200:
                    nothing_changed()
                return answer
        if lag_sec and action == "Query":
            payload = orjson.loads(body)
            if "IndexName" in payload:
                return await self._query(payload, request, lag_sec)
        return await self._forward(request, body)

    async def _query(self, payload: Wire, request: web.BaseRequest, lag_sec: float) -> web.Response:
        try:
            answer = await self._history.query(payload, self._asker(request), lag_sec=lag_sec)
        except NotUnderstoodError as error:
            return refusal(400, "ValidationException", f"the proxy cannot lag: {error}")
        return _json(200, answer)

    async def _forward(
        self, request: web.BaseRequest, body: bytes, action: str | None = None
    ) -> web.Response:
        assert self._session is not None
        headers = {
            name: request.headers[name]
            for name in ("Authorization", "X-Amz-Date", "X-Amz-Target", "Content-Type")
            if name in request.headers
        }
        if action is not None:
            headers["X-Amz-Target"] = f"DynamoDB_20120810.{action}"
        url = self._engine_url + request.path_qs
        async with self._session.request(request.method, url, data=body, headers=headers) as got:
            answer = await got.read()
            kind = got.headers.get("Content-Type", _CONTENT)
            return web.Response(status=got.status, body=answer, headers={"Content-Type": kind})

    def _asker(self, request: web.BaseRequest) -> Ask:
        async def ask(action: str, payload: Mapping[str, Any]) -> Wire:
            answer = await self._forward(request, orjson.dumps(payload), action)
            if answer.status != 200:
                raise aiohttp.ClientError(f"{action}: {answer.body!r}")
            assert isinstance(answer.body, bytes)
            found: Wire = orjson.loads(answer.body)
            return found

        return ask

    async def _control(self, request: web.BaseRequest) -> web.Response:
        match request.method, request.path:
            case "GET", "/_faults":
                pass
            case "PATCH", "/_faults":
                try:
                    self.set(**orjson.loads(await request.read()))
                except (TypeError, ValueError) as error:
                    return _json(400, {"error": str(error)})
            case "POST", "/_faults/reset-counts":
                self.reset_counts()
            case _:
                return _json(404, {"error": "GET or PATCH /_faults, POST /_faults/reset-counts"})
        return _json(
            200,
            {
                "faults": asdict(self.faults),
                "in_flight": self.in_flight,
                "total": self.total.as_json(),
                "since_reset": self.since_reset.as_json(),
            },
        )

    def _count(self, what: str, name: str) -> None:
        for counts in (self.total, self.since_reset):
            getattr(counts, what)[name] += 1


@asynccontextmanager
async def fault_proxy(
    engine_url: str, *, seed: int = 0, faults: Faults | None = None
) -> AsyncIterator[FaultProxy]:
    """A proxy in this process, on a port of its own."""
    proxy = FaultProxy(engine_url, seed=seed, faults=faults)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


def _json(status: int, content: Any) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(content), content_type=_CONTENT)


def refusal(status: int, kind: str, message: str) -> web.Response:
    return _json(status, {"__type": _TYPE + kind, "message": message})


def conflict(actions: int) -> web.Response:
    reasons = [{"Code": "TransactionConflict", "Message": "ongoing"}]
    reasons += [{"Code": "None"} for _ in range(actions - 1)]
    content = {"__type": _TYPE + "TransactionCanceledException", "message": "cancelled"}
    return _json(400, content | {"Message": "cancelled", "CancellationReasons": reasons})


def _cut(request: web.BaseRequest) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _serve(port: int, engine_url: str, seed: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    proxy = FaultProxy(engine_url, seed=seed)
    await proxy.start(port)
    try:
        await stopping.wait()
    finally:
        await proxy.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.proxy", description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--engine", required=True, help="the engine's URL")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.engine, options.seed))


if __name__ == "__main__":
    main()
