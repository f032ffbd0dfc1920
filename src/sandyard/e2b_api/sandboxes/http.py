"""The calls about sandboxes."""

import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.control import Endpoint, page_headers
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.errors import SandboxNotFoundError
from sandyard.e2b_api.model import (
    DEFAULT_TIMEOUT_SEC,
    DEFAULT_TIMEOUT_V2_SEC,
    is_running,
    iso,
    metadata_of,
)
from sandyard.e2b_api.requests import MOST_LISTED, body_of, query_of
from sandyard.e2b_api.sandboxes.access import SandboxAccess
from sandyard.e2b_api.sandboxes.metrics import SandboxMetrics
from sandyard.e2b_api.sandboxes.schemas import (
    AllMetricsQuery,
    ListQuery,
    MetricsQuery,
    NewNetworkBody,
    NewSandboxBody,
    RefreshBody,
    TimeoutBody,
)
from sandyard.e2b_api.sandboxes.service import E2bSandboxes, SandboxSelection
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import ConflictError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.sandboxes.model import Status

_MOST_LINES = 1000


class SandboxCalls:
    def __init__(
        self,
        sandboxes: E2bSandboxes,
        metrics: SandboxMetrics,
        access: SandboxAccess,
        *,
        clock: Clock,
    ) -> None:
        self._sandboxes = sandboxes
        self._of_sandbox = metrics
        self._access = access
        self._clock = clock

    def endpoints(self) -> Sequence[Endpoint]:
        read, run = Scope.READ, Scope.RUN
        one = "/sandboxes/{sandbox}"
        return (
            Endpoint("POST", "/sandboxes", self._create, run),
            Endpoint("POST", "/v2/sandboxes", self._create, run),
            Endpoint("GET", "/v2/sandboxes", self._list, read),
            Endpoint("GET", "/sandboxes", self._list_running, read),
            Endpoint("GET", "/sandboxes/metrics", self._all_metrics, read),
            Endpoint("GET", one, self._get, read),
            Endpoint("DELETE", one, self._kill, run),
            Endpoint("POST", f"{one}/timeout", self._set_timeout, run),
            Endpoint("POST", f"{one}/refreshes", self._refresh, run),
            Endpoint("POST", f"{one}/pause", self._pause, run),
            Endpoint("POST", f"{one}/resume", self._resume, run),
            Endpoint("POST", f"{one}/connect", self._connect, run),
            Endpoint("POST", f"/v2{one}/connect", self._connect, run),
            Endpoint("GET", f"{one}/logs", self._logs, read),
            Endpoint("GET", f"/v2{one}/logs", self._logs_v2, read),
            Endpoint("GET", f"{one}/metrics", self._metrics, read),
            Endpoint("PUT", f"{one}/network", self._set_network, run),
            Endpoint("GET", "/teams", self._teams, read),
        )

    async def _create(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, NewSandboxBody)
        made = await self._sandboxes.create(
            body,
            timeout_sec=_timeout(body, request),
            idempotency_key=request.headers.get("idempotency-key"),
            by=by,
        )
        return json_response(await self._access.sandbox_body(made, by=by), 201)

    async def _list(self, request: Request, by: Principal) -> Response:
        query = query_of(request, ListQuery)
        selection = SandboxSelection(
            query.state,
            metadata_of(query.metadata),
            template=query.template,
            started_after=query.started_after,
            is_oldest_first=query.order == "asc",
        )
        found, following = await self._sandboxes.list(
            selection, by=by, limit=query.limit, cursor=query.next_token
        )
        body = [each.listed(self._now()) for each in found]
        return json_response(body, headers=page_headers(following))

    async def _list_running(self, request: Request, by: Principal) -> Response:
        metadata = metadata_of(request.query_params.get("metadata", ""))
        selection = SandboxSelection(frozenset({"running"}), metadata)
        found, _ = await self._sandboxes.list(selection, by=by, limit=sys.maxsize)
        return json_response([each.listed(self._now()) for each in found])

    async def _get(self, request: Request, by: Principal) -> Response:
        found = await self._sandboxes.get(_name(request), by=by)
        return json_response(self._access.detailed(found, now=self._now(), by=by))

    async def _kill(self, request: Request, by: Principal) -> None:
        await self._sandboxes.kill(_name(request), by=by)

    async def _set_timeout(self, request: Request, by: Principal) -> None:
        body = await body_of(request, TimeoutBody)
        await self._sandboxes.set_timeout(_name(request), seconds=_timeout(body), by=by)

    async def _refresh(self, request: Request, by: Principal) -> None:
        seconds = (await body_of(request, RefreshBody)).duration
        seconds = DEFAULT_TIMEOUT_SEC if seconds is None else seconds
        await self._sandboxes.lengthen(_name(request), seconds=seconds, by=by)

    async def _pause(self, request: Request, by: Principal) -> None:
        await self._sandboxes.pause(_name(request), by=by)

    async def _connect(self, request: Request, by: Principal) -> Response:
        seconds = _timeout(await body_of(request, TimeoutBody), request)
        name = _name(request)
        found, was_paused = await self._sandboxes.connect(name, timeout_sec=seconds, by=by)
        body = await self._access.sandbox_body(found, by=by)
        return json_response(body, 201 if was_paused else 200)

    async def _resume(self, request: Request, by: Principal) -> Response:
        found = (await self._sandboxes.get(_name(request), by=by)).sandbox
        if found.status is Status.RUNNING and is_running(found, self._now()):
            raise ConflictError(f"sandbox {_name(request)} is running")
        return await self._connect(request, by)

    async def _set_network(self, request: Request, by: Principal) -> None:
        body = await body_of(request, NewNetworkBody)
        network, rules = body.outgoing(has_internet=body.allow_internet_access is not False)
        await self._sandboxes.set_network(_name(request), network, rules, by=by)

    async def _logs(self, request: Request, by: Principal) -> Response:
        entries = await self._entries(request, by)
        lines = [{"timestamp": each["timestamp"], "line": each["message"]} for each in entries]
        return json_response({"logs": lines, "logEntries": entries})

    async def _logs_v2(self, request: Request, by: Principal) -> Response:
        return json_response({"logs": await self._entries(request, by)})

    async def _entries(self, request: Request, by: Principal) -> Sequence[Mapping[str, Any]]:
        """Its program's output; single lines have no timestamps, so all get that of the start."""
        sandbox, lines = await self._sandboxes.logs(_name(request), by=by, lines=_MOST_LINES)
        at = iso(sandbox.started_at or sandbox.created_at)
        return [{"timestamp": at, "level": "info", "message": line, "fields": {}} for line in lines]

    async def _metrics(self, request: Request, by: Principal) -> Response:
        query = query_of(request, MetricsQuery)
        found = await self._sandboxes.get(_name(request), by=by)
        return json_response(await self._of_sandbox.list(found, start=query.start, end=query.end))

    async def _all_metrics(self, request: Request, by: Principal) -> Response:
        body = {}
        for name in query_of(request, AllMetricsQuery).names[:MOST_LISTED]:
            try:
                latest = await self._of_sandbox.latest(await self._sandboxes.get(name, by=by))
            except SandboxNotFoundError:
                continue
            if latest is not None:
                body[name] = latest
        return json_response({"sandboxes": body})

    async def _teams(self, _request: Request, by: Principal) -> Response:
        """An account is a team of one. Its keys are shown only once, where they are created."""
        team = {"teamID": by.account_id, "name": by.account_id, "apiKey": "", "isDefault": True}
        return json_response([team])

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


def _name(request: Request) -> str:
    name: str = request.path_params["sandbox"]
    return name


def _timeout(body: TimeoutBody, request: Request | None = None) -> int:
    """As sent, or the default of the call's version."""
    if body.timeout is not None:
        return body.timeout
    is_second = request is not None and "/v2/" in request.scope["path"]
    return DEFAULT_TIMEOUT_V2_SEC if is_second else DEFAULT_TIMEOUT_SEC
