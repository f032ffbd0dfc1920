"""The control API's calls, by their paths."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from sandyard.e2b_api.envd.paths import path_of
from sandyard.e2b_api.envd.responses import json_answer
from sandyard.e2b_api.errors import InvalidRequestError, NotOfferedError, SandboxNotFoundError
from sandyard.e2b_api.model import (
    DEFAULT_TIMEOUT_SEC,
    DEFAULT_TIMEOUT_V2_SEC,
    is_running,
    iso,
    metadata_of,
)
from sandyard.e2b_api.requests import body_of, new_sandbox, whole_number
from sandyard.e2b_api.routes import (
    MOST_LISTED,
    Handler,
    Route,
    limit_of,
    page_headers,
)
from sandyard.e2b_api.sandboxes.access import SandboxAccess
from sandyard.e2b_api.sandboxes.metrics import Measured
from sandyard.e2b_api.sandboxes.networks import network_of
from sandyard.e2b_api.sandboxes.service import E2bSandboxes, Listing
from sandyard.e2b_api.snapshots.http import SnapshotCalls
from sandyard.e2b_api.templates.http import TemplateCalls
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import MethodNotAllowedError, NotFoundError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.sandboxes.model import Status

_MOST_LINES = 1000
_YEAR_10000 = 253_402_300_800
"""In seconds since 1970: the first second beyond the range of `datetime`."""
_BOTH = frozenset({"running", "paused"})
_NOT_OFFERED = re.compile(r"/(volumes|secrets|api-keys|access-tokens|nodes|admin)(/.*)?")
_UPLOAD = re.compile(r"/templates/[^/]+/files/[^/]+")


class Guard(Protocol):
    async def require(self, request: Request, scope: Scope) -> Principal: ...


class Control:
    def __init__(
        self,
        guard: Guard,
        sandboxes: E2bSandboxes,
        measured: Measured,
        access: SandboxAccess,
        templates: TemplateCalls,
        snapshots: SnapshotCalls,
        *,
        clock: Clock,
    ) -> None:
        self._guard = guard
        self._sandboxes = sandboxes
        self._measured = measured
        self._access = access
        self._templates = templates
        self._clock = clock
        self._routes = (*self._table(), *templates.routes(), *snapshots.routes())

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        response = await self.answer(Request(scope, receive), path_of(scope))
        await response(scope, receive, send)

    async def answer(self, request: Request, path: str) -> Response:
        """Raises the call's errors, NotFoundError, MethodNotAllowedError, NotOfferedError."""
        if path == "/health":
            return json_answer({"status": "ok"})
        if request.method == "PUT" and _UPLOAD.fullmatch(path):
            return await self._templates.upload(request, path)
        matching = [(each, each.path.fullmatch(path)) for each in self._routes]
        found = [(route, match) for route, match in matching if match]
        for route, match in found:
            if match and route.method == request.method:
                principal = await self._guard.require(request, route.scope)
                named = match[1] if route.path.groups else ""
                return await route.handler(request, principal, named)
        if found:
            raise MethodNotAllowedError
        await self._guard.require(request, Scope.READ)
        raise NotOfferedError if _NOT_OFFERED.fullmatch(path) else NotFoundError

    def _table(self) -> Sequence[Route]:
        read, run = Scope.READ, Scope.RUN
        one = r"/sandboxes/([^/]+)"
        table: Sequence[tuple[str, str, Handler, Scope]] = (
            ("POST", r"(?:/v2)?/sandboxes", self._create, run),
            ("GET", r"/v2/sandboxes", self._list, read),
            ("GET", r"/sandboxes", self._list_running, read),
            ("GET", r"/sandboxes/metrics", self._all_metrics, read),
            ("GET", one, self._get, read),
            ("DELETE", one, self._kill, run),
            ("POST", rf"{one}/timeout", self._set_timeout, run),
            ("POST", rf"{one}/refreshes", self._refresh, run),
            ("POST", rf"{one}/pause", self._pause, run),
            ("POST", rf"{one}/resume", self._resume, run),
            ("POST", rf"(?:/v2)?{one}/connect", self._connect, run),
            ("GET", rf"{one}/logs", self._logs, read),
            ("GET", rf"/v2{one}/logs", self._logs_v2, read),
            ("GET", rf"{one}/metrics", self._metrics, read),
            ("PUT", rf"{one}/network", self._set_network, run),
            ("GET", r"/teams", self._teams, read),
        )
        return [Route.of(*each) for each in table]

    async def _create(self, request: Request, by: Principal, _name: str) -> Response:
        key = request.headers.get("idempotency-key")
        timeout_sec = _default_timeout(request)
        wanted = new_sandbox(await body_of(request), idempotency_key=key, timeout_sec=timeout_sec)
        made = await self._sandboxes.create(wanted, by=by)
        return json_answer(await self._access.sandbox_body(made, by=by), 201)

    async def _list(self, request: Request, by: Principal, _name: str) -> Response:
        query = request.query_params
        states = frozenset(",".join(query.getlist("state")).split(",")) - {""}
        if not states <= _BOTH:
            raise InvalidRequestError("`state` must be `running`, `paused` or both.")
        order = query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidRequestError("`order` must be `asc` or `desc`.")
        listing = Listing(
            states or _BOTH,
            metadata_of(query.get("metadata", "")),
            template=query.get("template") or None,
            started_after=_time(query.get("startedAfter")),
            is_oldest_first=order == "asc",
        )
        cursor = query.get("nextToken") or None
        found, following = await self._sandboxes.list(
            listing, by=by, limit=limit_of(request), cursor=cursor
        )
        body = [each.listed(self._now()) for each in found]
        return json_answer(body, headers=page_headers(following))

    async def _list_running(self, request: Request, by: Principal, _name: str) -> Response:
        listing = Listing(
            frozenset({"running"}), metadata_of(request.query_params.get("metadata", ""))
        )
        found = await self._sandboxes.list_all(listing, by=by)
        return json_answer([each.listed(self._now()) for each in found])

    async def _get(self, _request: Request, by: Principal, name: str) -> Response:
        found = await self._sandboxes.get(name, by=by)
        return json_answer(self._access.detailed(found, now=self._now(), by=by))

    async def _kill(self, _request: Request, by: Principal, name: str) -> Response:
        await self._sandboxes.kill(name, by=by)
        return Response(status_code=204)

    async def _set_timeout(self, request: Request, by: Principal, name: str) -> Response:
        seconds = whole_number(await body_of(request), "timeout", DEFAULT_TIMEOUT_SEC)
        await self._sandboxes.set_timeout(name, seconds=seconds, by=by)
        return Response(status_code=204)

    async def _refresh(self, request: Request, by: Principal, name: str) -> Response:
        seconds = whole_number(await body_of(request), "duration", DEFAULT_TIMEOUT_SEC)
        await self._sandboxes.lengthen(name, seconds=seconds, by=by)
        return Response(status_code=204)

    async def _pause(self, _request: Request, by: Principal, name: str) -> Response:
        await self._sandboxes.pause(name, by=by)
        return Response(status_code=204)

    async def _connect(self, request: Request, by: Principal, name: str) -> Response:
        seconds = whole_number(await body_of(request), "timeout", _default_timeout(request))
        found, was_paused = await self._sandboxes.connect(name, timeout_sec=seconds, by=by)
        body = await self._access.sandbox_body(found, by=by)
        return json_answer(body, 201 if was_paused else 200)

    async def _set_network(self, request: Request, by: Principal, name: str) -> Response:
        body = await body_of(request)
        has_internet = body.get("allow_internet_access") is not False
        network, rules = network_of(body, has_internet=has_internet)
        await self._sandboxes.set_network(name, network, rules, by=by)
        return Response(status_code=204)

    async def _resume(self, request: Request, by: Principal, name: str) -> Response:
        found = (await self._sandboxes.get(name, by=by)).sandbox
        if found.status is Status.RUNNING and is_running(found, self._now()):
            return json_answer({"code": 409, "message": f"sandbox {name} is running"}, 409)
        return await self._connect(request, by, name)

    async def _logs(self, _request: Request, by: Principal, name: str) -> Response:
        entries = await self._entries(name, by)
        lines = [{"timestamp": each["timestamp"], "line": each["message"]} for each in entries]
        return json_answer({"logs": lines, "logEntries": entries})

    async def _logs_v2(self, _request: Request, by: Principal, name: str) -> Response:
        return json_answer({"logs": await self._entries(name, by)})

    async def _entries(self, name: str, by: Principal) -> Sequence[Mapping[str, Any]]:
        """Its program's output; single lines have no timestamps, so all get that of the start."""
        described = await self._sandboxes.get(name, by=by)
        at = iso(described.sandbox.started_at or described.sandbox.created_at)
        lines = await self._sandboxes.logs(name, by=by, lines=_MOST_LINES)
        return [{"timestamp": at, "level": "info", "message": line, "fields": {}} for line in lines]

    async def _metrics(self, request: Request, by: Principal, name: str) -> Response:
        described = await self._sandboxes.get(name, by=by)
        query = request.query_params
        found = await self._measured.of(
            described, start=_moment(query.get("start")), end=_moment(query.get("end"))
        )
        return json_answer(found)

    async def _all_metrics(self, request: Request, by: Principal, _name: str) -> Response:
        asked = ",".join(request.query_params.getlist("sandbox_ids")).split(",")
        body = {}
        for name in asked[:MOST_LISTED]:
            try:
                latest = await self._measured.latest(await self._sandboxes.get(name, by=by))
            except SandboxNotFoundError:
                continue
            if latest is not None:
                body[name] = latest
        return json_answer({"sandboxes": body})

    async def _teams(self, _request: Request, by: Principal, _name: str) -> Response:
        """An account is a team of one. Its keys are shown only once, where they are created."""
        team = {"teamID": by.account_id, "name": by.account_id, "apiKey": "", "isDefault": True}
        return json_answer([team])

    def _now(self) -> Any:
        return utc_time(self._clock.now())


def _moment(text: str | None) -> float | None:
    if not text:
        return None
    try:
        moment = float(text)
    except ValueError:
        moment = -1
    if not 0 <= moment < _YEAR_10000:  # also rejects NaN
        raise InvalidRequestError("`start` and `end` must be Unix seconds.")
    return moment


def _time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            "`startedAfter` must be a time such as 2026-01-31T12:00:00Z."
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _default_timeout(request: Request) -> int:
    is_second = "/v2/" in request.url.path
    return DEFAULT_TIMEOUT_V2_SEC if is_second else DEFAULT_TIMEOUT_SEC
