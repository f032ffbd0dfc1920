"""A cloud provider that exists only in this process: both dialects, real HTTP, faults on demand."""

import asyncio
import hmac
import math
import random
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

_NAMESPACE = uuid.UUID("1b0b4b0e-8a2c-5d0e-9a55-0d4c0c0b7a11")
_ACCOUNT = "identity/accounts/{}"
_HANG_SEC = 3600
_MOST_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Faults:
    """The current faults."""

    latency: float = 0.0
    delete_latency: float = 0.0
    error_rate: float = 0.0
    outage: Literal["none", "error", "hang"] = "none"
    break_after_page: int = 0
    empty_list: bool = False
    lost_creations: bool = False

    def changed(self, settings: dict[str, Any]) -> "Faults":
        """With these settings applied. Raises ValueError for the first invalid one."""
        types = {f.name: type(f.default) for f in fields(self)}
        for name, value in settings.items():
            if name not in types:
                raise ValueError(f"unknown fault {name}; known faults: {', '.join(types)}")
            if not _fits(value, types[name]):
                raise ValueError(f"{name} must be a {types[name].__name__}, zero or more")
        changed = replace(self, **settings)
        if changed.outage not in ("none", "error", "hang"):
            raise ValueError("outage must be none, error or hang")
        if not 0 <= changed.error_rate <= 1:
            raise ValueError("error_rate must be from 0 to 1")
        return changed


@dataclass(slots=True)
class Simulator:
    """The provider's state. With `state_file` it survives a restart."""

    token: str | None = None
    """Of its callers; anybody may call it without one."""
    accepts_control: Callable[[bytes], bool] | None = None
    """Whether this token may change faults and sandboxes; by default the callers' token may."""
    faults: Faults = field(default_factory=Faults)
    state_file: Path | None = None
    randomness: random.Random = field(default_factory=random.Random)
    sandboxes: dict[str, dict[str, str]] = field(default_factory=dict)
    made: int = 0
    calls: dict[str, int] = field(default_factory=lambda: {"list": 0, "delete": 0})

    def load_or_create(self, count: int) -> None:
        if self.state_file and self.state_file.exists():
            try:
                state = orjson.loads(self.state_file.read_bytes())
                self.sandboxes, self.made = dict(state["sandboxes"]), int(state["made"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(f"{self.state_file} is not the state of a simulator") from error
        else:
            self.create(count)

    def create(self, count: int) -> None:
        for number in range(self.made + 1, self.made + count + 1):
            self._add(number, f"sandbox-{number:04}")
        self.made += count
        self._save()

    def create_named(self, name: str) -> dict[str, str]:
        """The sandbox with this name, created if there is none."""
        for each in self.sandboxes.values():
            if each["name"] == name:
                return each
        self.made += 1
        made = self._add(self.made, name)
        self._save()
        return made

    def _add(self, number: int, name: str) -> dict[str, str]:
        identity = str(uuid.uuid5(_NAMESPACE, str(number)))
        self.sandboxes[identity] = {
            "id": identity,
            "name": name,
            "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        return self.sandboxes[identity]

    def listed(self) -> list[dict[str, str]]:
        return [] if self.faults.empty_list else list(self.sandboxes.values())

    def delete(self, identity: str) -> bool:
        known = self.sandboxes.pop(identity, None) is not None
        if known:
            self._save()
        return known

    def _save(self) -> None:
        if self.state_file is None:
            return
        draft = self.state_file.with_suffix(".tmp")
        draft.write_bytes(orjson.dumps({"sandboxes": self.sandboxes, "made": self.made}))
        draft.replace(self.state_file)

    async def trouble(self, request: Request) -> Response | None:
        """Applies the configured faults to this request, before it is handled."""
        faults = self.faults
        await asyncio.sleep(faults.latency)
        if request.method == "DELETE":
            await asyncio.sleep(faults.delete_latency)
        if faults.outage == "hang":
            await asyncio.sleep(_HANG_SEC)
        if faults.outage == "error":
            return _error(503, "outage")
        if self.randomness.random() < faults.error_rate:
            return _error(500, "an error that was asked for")
        return None if self._is_token(_token(request)) else _error(401, "wrong token")

    def may_control(self, request: Request) -> bool:
        return (self.accepts_control or self._is_token)(_token(request))

    def _is_token(self, sent: bytes) -> bool:
        return not self.token or hmac.compare_digest(sent, self.token.encode())


def _token(request: Request) -> bytes:
    return request.headers.get("authorization", "").split(" ", 1)[-1].encode()


def _fits(value: Any, kind: type) -> bool:
    if kind in (bool, str):
        return isinstance(value, kind)
    wanted = (int, float) if kind is float else int
    is_number = isinstance(value, wanted) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value >= 0


def create_simulator_app(simulator: Simulator) -> Starlette:
    app = Starlette(
        routes=[
            Route("/api/sandbox", _faulty(_list_generic, "list")),
            Route("/api/sandbox", _faulty(_create_named), methods=["POST"]),
            Route("/api/sandbox/{identity}", _faulty(_get)),
            Route("/api/sandbox/{identity}", _faulty(_delete, "delete"), methods=["DELETE"]),
            Route("/current_user/accounts", _faulty(_list_infoblox, "list")),
            Route("/sandbox/accounts/{identity}", _faulty(_delete, "delete"), methods=["DELETE"]),
            Route("/_sim", _show),
            Route("/_sim", _controlled(_change), methods=["PATCH"]),
            Route("/_sim/sandboxes", _controlled(_create), methods=["POST"]),
        ]
    )
    app.state.simulator = simulator
    return app


def _simulator(request: Request) -> Simulator:
    simulator: Simulator = request.app.state.simulator
    return simulator


def _faulty(
    call: Callable[[Simulator, Request], Awaitable[Response]], counted_as: str | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """The call, after the configured faults."""

    async def answer(request: Request) -> Response:
        simulator = _simulator(request)
        if counted_as is not None:
            simulator.calls[counted_as] += 1
        return await simulator.trouble(request) or await call(simulator, request)

    return answer


def _controlled(
    call: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """The call, for those who may change the simulator."""

    async def answer(request: Request) -> Response:
        is_allowed = _simulator(request).may_control(request)
        return await call(request) if is_allowed else _error(401, "wrong token")

    return answer


async def _list_generic(simulator: Simulator, request: Request) -> Response:
    try:
        limit = min(max(int(request.query_params.get("limit", "50")), 1), 1000)
        start = int(request.query_params.get("cursor", "0"))
    except ValueError:
        return _error(400, "limit and cursor are numbers")
    if 0 < simulator.faults.break_after_page < start // limit + 1:
        return _error(500, "the list breaks off here")
    entries = simulator.listed()
    following = start + limit if start + limit < len(entries) else None
    return JSONResponse(
        {
            "sandboxes": entries[start : start + limit],
            "next_cursor": None if following is None else str(following),
        }
    )


async def _list_infoblox(simulator: Simulator, _request: Request) -> Response:
    accounts = [
        {
            **entry,
            "id": _ACCOUNT.format(entry["id"]),
            "csp_id": f"csp-{number}",
            "account_type": "sandbox",
            "state": "active",
        }
        for number, entry in enumerate(simulator.listed())
    ]
    return JSONResponse({"results": accounts})


async def _create_named(simulator: Simulator, request: Request) -> Response:
    try:
        name = (await request.json())["name"]
    except (ValueError, KeyError, TypeError):
        name = None
    if not isinstance(name, str) or not 0 < len(name) <= 128:
        return _error(400, 'send {"name": NAME}, up to 128 characters')
    made = simulator.create_named(name)
    if simulator.faults.lost_creations:
        return _error(500, "made, and the answer is lost")
    return JSONResponse(made, status_code=201)


async def _get(simulator: Simulator, request: Request) -> Response:
    found = simulator.sandboxes.get(request.path_params["identity"])
    return JSONResponse(found) if found else _error(404, "no such sandbox")


async def _delete(simulator: Simulator, request: Request) -> Response:
    known = simulator.delete(request.path_params["identity"])
    return Response(status_code=204) if known else _error(404, "no such sandbox")


async def _show(request: Request) -> Response:
    simulator = _simulator(request)
    return JSONResponse(
        {
            "sandboxes": len(simulator.sandboxes),
            "calls": simulator.calls,
            "faults": asdict(simulator.faults),
        }
    )


async def _change(request: Request) -> Response:
    simulator = _simulator(request)
    try:
        settings = await request.json()
        if not isinstance(settings, dict):
            return _error(400, "send a JSON object of faults")
        simulator.faults = simulator.faults.changed(settings)
    except ValueError as error:
        return _error(400, str(error))
    return await _show(request)


async def _create(request: Request) -> Response:
    try:
        count = int((await request.json())["count"])
    except (ValueError, KeyError, TypeError, OverflowError):
        count = -1
    if not 0 <= count <= _MOST_AT_ONCE:
        return _error(400, 'send {"count": N}, N up to a million')
    _simulator(request).create(count)
    return await _show(request)


def _error(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status_code=status)
