"""The calls about sandboxes."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.control import (
    MOST_LISTED,
    Endpoint,
    body_of,
    page_headers,
    query_of,
    unless_disconnected,
)
from sandyard.e2b_api.envd.connect import error_body, json_response
from sandyard.e2b_api.errors import SandboxNotFoundError
from sandyard.e2b_api.model import (
    CLIENT_ID,
    DEFAULT_TIMEOUT_SEC,
    DEFAULT_TIMEOUT_V2_SEC,
    ENVD_VERSION,
    PLATFORM_STATUSES,
    SandboxView,
    iso,
    metadata_of,
)
from sandyard.e2b_api.sandboxes import schemas
from sandyard.e2b_api.sandboxes.entrance import SandboxMetrics
from sandyard.e2b_api.sandboxes.service import E2bSandboxes, SandboxSelection
from sandyard.e2b_api.sandboxes.snapshots import UNNAMED, Snapshots
from sandyard.e2b_api.templates.finder import TemplateName
from sandyard.e2b_api.tokens import Holder, SandboxTokens
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.templates.model import Template

_MOST_LINES = 1000


@dataclass(frozen=True, slots=True)
class SandboxAccess:
    """The tokens and addresses that give a caller access to a sandbox."""

    tokens: SandboxTokens
    traffic_token: Callable[[str, Principal], Awaitable[str]]
    """For the ports of this sandbox, which is not public, for this caller."""
    domain: str
    clock: Clock

    async def sandbox_body(self, view: SandboxView, *, by: Principal) -> Mapping[str, Any]:
        sandbox, traffic = view.sandbox, None
        if not sandbox.is_public:
            traffic = await self.traffic_token(sandbox.sandbox_id, by)
        body = {
            "templateID": sandbox.template_id,
            "sandboxID": sandbox.sandbox_id,
            "clientID": CLIENT_ID,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self._token(sandbox, by),
            "trafficAccessToken": traffic,
            "domain": self.domain,
        }
        return body if view.alias is None else body | {"alias": view.alias}

    def detailed(self, view: SandboxView, *, now: datetime, by: Principal) -> Mapping[str, Any]:
        """Callers with read access only get no token."""
        may_enter = by.scope.includes(Scope.RUN)
        token = self._token(view.sandbox, by) if may_enter else None
        network = schemas.network_body(view.sandbox)
        return view.detailed(now, domain=self.domain, token=token, network=network)

    def _token(self, sandbox: Sandbox, by: Principal) -> str:
        """It ends with the caller's credential, and when the sandbox is stopped."""
        run = (sandbox.sandbox_id, sandbox.access_version)
        holder = Holder(*run, by.account_id, by.token_version, by.key_id)
        return self.tokens.issue(holder, at=self.clock.now())


@dataclass(frozen=True, slots=True)
class SandboxCalls:
    sandboxes: E2bSandboxes
    metrics: SandboxMetrics
    snapshots: Snapshots
    access: SandboxAccess
    clock: Clock

    def endpoints(self) -> Sequence[Endpoint]:
        read, run = Scope.READ, Scope.RUN
        one = "/sandboxes/{sandbox}"
        return (
            Endpoint("POST", "/sandboxes", self._create, run, makes=True),
            Endpoint("POST", "/v2/sandboxes", self._create, run, makes=True),
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
            Endpoint("POST", f"{one}/snapshots", self._create_snapshot, run, makes=True),
            Endpoint("POST", f"{one}/fork", self._fork, run, makes=True),
            Endpoint("GET", "/snapshots", self._list_snapshots, read),
            Endpoint("GET", "/teams", self._teams, read),
        )

    async def _create(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, schemas.NewSandboxBody)
        creating = asyncio.ensure_future(
            self.sandboxes.create(body, timeout_sec=_timeout(body, request), by=by)
        )
        made = await unless_disconnected(request, creating)
        return json_response(await self.access.sandbox_body(made, by=by), 201)

    async def _list(self, request: Request, by: Principal) -> Response:
        query = query_of(request, schemas.ListQuery)
        selection = SandboxSelection(
            query.state,
            metadata_of(query.metadata),
            template=query.template,
            started_after=query.started_after,
            is_oldest_first=query.order == "asc",
        )
        found, following = await self.sandboxes.list(
            selection, by=by, limit=query.limit, cursor=query.next_token
        )
        body = [each.listed(self._now()) for each in found]
        return json_response(body, headers=page_headers(following))

    async def _list_running(self, request: Request, by: Principal) -> Response:
        metadata = metadata_of(request.query_params.get("metadata", ""))
        selection = SandboxSelection(frozenset({"running"}), metadata)
        found, _ = await self.sandboxes.list(selection, by=by, limit=sys.maxsize)
        return json_response([each.listed(self._now()) for each in found])

    async def _get(self, request: Request, by: Principal) -> Response:
        found = await self.sandboxes.get(_name(request), by=by)
        return json_response(self.access.detailed(found, now=self._now(), by=by))

    async def _kill(self, request: Request, by: Principal) -> None:
        await self.sandboxes.kill(_name(request), by=by)

    async def _set_timeout(self, request: Request, by: Principal) -> None:
        body = await body_of(request, schemas.TimeoutBody)
        await self.sandboxes.set_timeout(_name(request), seconds=_timeout(body), by=by)

    async def _refresh(self, request: Request, by: Principal) -> None:
        seconds = (await body_of(request, schemas.RefreshBody)).duration
        seconds = DEFAULT_TIMEOUT_SEC if seconds is None else seconds
        await self.sandboxes.lengthen(_name(request), seconds=seconds, by=by)

    async def _pause(self, request: Request, by: Principal) -> None:
        body = await body_of(request, schemas.PauseBody)
        await self.sandboxes.pause(_name(request), has_memory=body.memory, by=by)

    async def _connect(
        self, request: Request, by: Principal, *, must_be_paused: bool = False
    ) -> Response:
        sent = await body_of(request, schemas.ConnectBody)
        found, was_paused = await self.sandboxes.connect(
            _name(request),
            timeout_sec=_timeout(sent, request),
            must_be_paused=must_be_paused,
            restores_memory=sent.memory is not False,
            by=by,
        )
        body = await self.access.sandbox_body(found, by=by)
        return json_response(body, 201 if was_paused else 200)

    async def _resume(self, request: Request, by: Principal) -> Response:
        return await self._connect(request, by, must_be_paused=True)

    async def _set_network(self, request: Request, by: Principal) -> None:
        body = await body_of(request, schemas.NewNetworkBody)
        network, rules = body.outgoing(has_internet=body.allow_internet_access is not False)
        headers = body.bound_headers()
        await self.sandboxes.set_network(_name(request), network, rules, headers, by=by)

    async def _logs(self, request: Request, by: Principal) -> Response:
        entries = await self._entries(request, by)
        lines = [{"timestamp": each["timestamp"], "line": each["message"]} for each in entries]
        return json_response({"logs": lines, "logEntries": entries})

    async def _logs_v2(self, request: Request, by: Principal) -> Response:
        return json_response({"logs": await self._entries(request, by)})

    async def _entries(self, request: Request, by: Principal) -> Sequence[Mapping[str, Any]]:
        """Its program's output; single lines have no timestamps, so all get that of the start."""
        sandbox, lines = await self.sandboxes.logs(_name(request), by=by, lines=_MOST_LINES)
        at = iso(sandbox.started_at or sandbox.created_at)
        return [{"timestamp": at, "level": "info", "message": line, "fields": {}} for line in lines]

    async def _metrics(self, request: Request, by: Principal) -> Response:
        query = query_of(request, schemas.MetricsQuery)
        found = await self.sandboxes.get(_name(request), by=by)
        return json_response(await self.metrics.list(found, start=query.start, end=query.end))

    async def _all_metrics(self, request: Request, by: Principal) -> Response:
        body = {}
        for name in query_of(request, schemas.AllMetricsQuery).names[:MOST_LISTED]:
            try:
                latest = await self.metrics.latest(await self.sandboxes.get(name, by=by))
            except SandboxNotFoundError:
                continue
            if latest is not None:
                body[name] = latest
        return json_response({"sandboxes": body})

    async def _create_snapshot(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, schemas.NewSnapshotBody)
        name = body.name or None
        made = await self.snapshots.create(_name(request), name, has_memory=body.memory, by=by)
        tag = TemplateName.of(name or "").tag
        return json_response(_snapshot_of(made) | ({"names": [name]} if tag else {}), 201)

    async def _fork(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, schemas.ForkBody)
        forks = await self.snapshots.fork(
            _name(request),
            count=body.count,
            timeout_sec=_timeout(body),
            by=by,
        )
        return json_response([await self._fork_body(each, by) for each in forks], 201)

    async def _fork_body(
        self, fork: SandboxView | SandyardError, by: Principal
    ) -> Mapping[str, Any]:
        if isinstance(fork, SandyardError):
            return {"error": error_body(fork, PLATFORM_STATUSES)}
        return {"sandbox": await self.access.sandbox_body(fork, by=by)}

    async def _list_snapshots(self, request: Request, by: Principal) -> Response:
        query = query_of(request, schemas.SnapshotQuery)
        found, following = await self.snapshots.templates.snapshots(
            by=by,
            made_from=query.sandbox_id,
            name=query.name,
            limit=query.limit,
            cursor=query.next_token,
        )
        return json_response(
            [_snapshot_of(each) for each in found], headers=page_headers(following)
        )

    async def _teams(self, _request: Request, by: Principal) -> Response:
        """An account is a team of one. Its keys are shown only once, where they are created."""
        team = {"teamID": by.account_id, "name": by.account_id, "apiKey": "", "isDefault": True}
        return json_response([team])

    def _now(self) -> datetime:
        return utc_time(self.clock.now())


def _name(request: Request) -> str:
    name: str = request.path_params["sandbox"]
    return name


def _timeout(body: schemas.TimeoutBody, request: Request | None = None) -> int:
    """As sent, or the default of the call's version."""
    if body.timeout is not None:
        return body.timeout
    is_second = request is not None and "/v2/" in request.scope["path"]
    return DEFAULT_TIMEOUT_V2_SEC if is_second else DEFAULT_TIMEOUT_SEC


def _snapshot_of(template: Template) -> dict[str, Any]:
    """A snapshot that was not given a name has none."""
    names = [] if UNNAMED.fullmatch(template.name) else [template.name]
    return {"snapshotID": template.template_id, "names": names}
