"""The calls about snapshots and forks."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.control import Endpoint, page_headers
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.envd.responses import error_body
from sandyard.e2b_api.model import DEFAULT_TIMEOUT_SEC, PLATFORM_STATUSES, SandboxView
from sandyard.e2b_api.requests import Body, PageQuery, body_of, query_of
from sandyard.e2b_api.sandboxes.access import SandboxAccess
from sandyard.e2b_api.sandboxes.schemas import TimeoutBody
from sandyard.e2b_api.snapshots.service import MOST_FORKS, UNNAMED, Snapshots
from sandyard.e2b_api.templates.finder import TemplateFinder, TemplateName
from sandyard.kit.errors import SandyardError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.templates.model import Template


class NewSnapshotBody(Body):
    name: str | None = None


class ForkBody(TimeoutBody):
    count: int = Field(default=1, ge=1, le=MOST_FORKS)


class SnapshotQuery(PageQuery):
    sandbox_id: str | None = Field(default=None, alias="sandboxID")
    name: str | None = None


class SnapshotCalls:
    def __init__(
        self, snapshots: Snapshots, templates: TemplateFinder, access: SandboxAccess
    ) -> None:
        self._snapshots = snapshots
        self._templates = templates
        self._access = access

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint("POST", "/sandboxes/{sandbox}/snapshots", self._create, Scope.RUN),
            Endpoint("POST", "/sandboxes/{sandbox}/fork", self._fork, Scope.RUN),
            Endpoint("GET", "/snapshots", self._list, Scope.READ),
        )

    async def _create(self, request: Request, by: Principal) -> Response:
        name = (await body_of(request, NewSnapshotBody)).name or None
        made = await self._snapshots.create(request.path_params["sandbox"], name, by=by)
        tag = TemplateName.of(name or "").tag
        return json_response(_snapshot_of(made) | ({"names": [name]} if tag else {}), 201)

    async def _fork(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, ForkBody)
        forks = await self._snapshots.fork(
            request.path_params["sandbox"],
            count=body.count,
            timeout_sec=DEFAULT_TIMEOUT_SEC if body.timeout is None else body.timeout,
            by=by,
        )
        return json_response([await self._result(each, by) for each in forks], 201)

    async def _result(self, fork: SandboxView | SandyardError, by: Principal) -> Mapping[str, Any]:
        if isinstance(fork, SandyardError):
            return {"error": error_body(fork, PLATFORM_STATUSES)}
        return {"sandbox": await self._access.sandbox_body(fork, by=by)}

    async def _list(self, request: Request, by: Principal) -> Response:
        query = query_of(request, SnapshotQuery)
        found, following = await self._templates.snapshots(
            by=by,
            made_from=query.sandbox_id,
            name=query.name,
            limit=query.limit,
            cursor=query.next_token,
        )
        return json_response(
            [_snapshot_of(each) for each in found], headers=page_headers(following)
        )


def _snapshot_of(template: Template) -> dict[str, Any]:
    """A snapshot that was not given a name has none."""
    names = [] if UNNAMED.fullmatch(template.name) else [template.name]
    return {"snapshotID": template.template_id, "names": names}
