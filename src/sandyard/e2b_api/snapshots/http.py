"""The calls about snapshots and forks."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.envd.responses import error_body, json_answer
from sandyard.e2b_api.model import DEFAULT_TIMEOUT_SEC, PLATFORM_STATUSES, Described
from sandyard.e2b_api.requests import body_of, optional_text, whole_number
from sandyard.e2b_api.routes import Route, limit_of, page_headers
from sandyard.e2b_api.sandboxes.access import SandboxAccess
from sandyard.e2b_api.snapshots.service import UNNAMED, Snapshots
from sandyard.e2b_api.templates.finder import TemplateFinder, TemplateName
from sandyard.kit.errors import SandyardError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.templates.model import Template


class SnapshotCalls:
    def __init__(
        self, snapshots: Snapshots, templates: TemplateFinder, access: SandboxAccess
    ) -> None:
        self._snapshots = snapshots
        self._templates = templates
        self._access = access

    def routes(self) -> Sequence[Route]:
        one = r"/sandboxes/([^/]+)"
        return (
            Route.of("POST", rf"{one}/snapshots", self._create, Scope.RUN),
            Route.of("POST", rf"{one}/fork", self._fork, Scope.RUN),
            Route.of("GET", r"/snapshots", self._list, Scope.READ),
        )

    async def _create(self, request: Request, by: Principal, name: str) -> Response:
        wanted = optional_text(await body_of(request), "name")
        made = _snapshot_of(await self._snapshots.create(name, wanted, by=by))
        tag = TemplateName.of(wanted or "").tag
        return json_answer(made | ({"names": [wanted]} if tag else {}), 201)

    async def _fork(self, request: Request, by: Principal, name: str) -> Response:
        body = await body_of(request)
        forks = await self._snapshots.fork(
            name,
            count=whole_number(body, "count", 1),
            timeout_sec=whole_number(body, "timeout", DEFAULT_TIMEOUT_SEC),
            by=by,
        )
        return json_answer([await self._result(each, by) for each in forks], 201)

    async def _result(self, fork: Described | SandyardError, by: Principal) -> Mapping[str, Any]:
        if isinstance(fork, SandyardError):
            return {"error": error_body(fork, PLATFORM_STATUSES)}
        return {"sandbox": await self._access.sandbox_body(fork, by=by)}

    async def _list(self, request: Request, by: Principal, _name: str) -> Response:
        query = request.query_params
        found, following = await self._templates.snapshots(
            by=by,
            made_from=query.get("sandboxID") or None,
            name=query.get("name") or None,
            limit=limit_of(request),
            cursor=query.get("nextToken") or None,
        )
        return json_answer([_snapshot_of(each) for each in found], headers=page_headers(following))


def _snapshot_of(template: Template) -> dict[str, Any]:
    """A snapshot that was not given a name has none."""
    names = [] if UNNAMED.fullmatch(template.name) else [template.name]
    return {"snapshotID": template.template_id, "names": names}
