"""The calls about builds of templates."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandyard.e2b_api import errors
from sandyard.e2b_api.builds.dockerfiles import with_dockerfile
from sandyard.e2b_api.builds.recipes import RecipeBody, recipe_of
from sandyard.e2b_api.builds.records import Build
from sandyard.e2b_api.builds.service import Builds, build_request
from sandyard.e2b_api.control import MOST_LISTED, Body, Endpoint, NoEffect, Refused, body_of
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.e2b_api.tokens import UploadTokens
from sandyard.kit.errors import InvalidError, NotFoundError
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.templates.model import MAX_CPU, MAX_MEMORY, MIN_CPU

_MEMORY_MB = 1024
_LEAST_MB, _MOST_MB = 128, MAX_MEMORY << 10
"""Machines have at least 512 MB; less is accepted, as at E2B."""
_FILES = "/templates/{template}/files/{files}"


class NewBuildBody(Body):
    name: str | None = None
    alias: str | None = None
    tags: list[str] | None = None
    cpu_count: int = Field(default=MIN_CPU, ge=MIN_CPU, le=MAX_CPU)
    team_id: NoEffect = Field(default=None, alias="teamID")
    min_free_disk_mb: Refused = None
    memory_mb: int = Field(default=_MEMORY_MB, ge=_LEAST_MB, le=_MOST_MB, alias="memoryMB")


@dataclass(frozen=True, slots=True)
class BuildCalls:
    builds: Builds
    templates: TemplateFinder
    tokens: UploadTokens

    def endpoints(self) -> Sequence[Endpoint]:
        read, run = Scope.READ, Scope.RUN
        one = "/templates/{template}/builds/{build}"
        return (
            Endpoint("POST", "/v2/templates", self._request, run, makes=True),
            Endpoint("POST", "/v3/templates", self._request, run, makes=True),
            Endpoint("POST", f"/v2{one}", self._start, run),
            Endpoint("GET", f"{one}/status", self._status, read),
            Endpoint("GET", f"{one}/logs", self._logs, read),
            Endpoint("GET", _FILES, self._upload_link, run),
            Endpoint("POST", "/templates", self._refuse, run),
            Endpoint("POST", "/templates/{rest:path}", self._refuse, run),
        )

    def public_routes(self) -> Sequence[Route]:
        """Anyone with an upload's link may use it."""
        return [Route(_FILES, self._upload, methods=["PUT"])]

    async def _upload(self, request: Request) -> Response:
        template_id, files_hash = request.path_params["template"], request.path_params["files"]
        signature = request.query_params.get("signature", "")
        account_id = self.tokens.account_of(
            signature, f"{template_id}/{files_hash}", at=self.builds.clock.now()
        )
        if account_id is None:
            raise errors.AccessTokenMissingError
        await self.builds.upload(template_id, files_hash, request.stream(), account_id=account_id)
        return Response(status_code=200)

    async def _request(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, NewBuildBody)
        if not (name := body.name or body.alias):
            raise errors.InvalidRequestError("`name` must be the template's name.")
        wanted = build_request(name, body.tags or [], cpu=body.cpu_count, memory_mb=body.memory_mb)
        return json_response(_requested(await self.builds.request(wanted, by=by)), 202)

    async def _start(self, request: Request, by: Principal) -> Response:
        """A refused build is over: it no longer counts as an open one."""
        build = self.builds.get(*_ids(request), by=by)
        try:
            body = await body_of(request, RecipeBody)
            recipe = recipe_of(body)
            if body.dockerfile is not None:
                recipe = await asyncio.to_thread(
                    with_dockerfile, recipe, body.dockerfile, body.context
                )
            await self.builds.start(build, recipe, by=by)
        except (InvalidError, NotFoundError) as error:
            self.builds.refuse(build, error)
            raise
        return Response(status_code=202)

    async def _status(self, request: Request, by: Principal) -> Response:
        template_id, build_id = _ids(request)
        offset = request.query_params.get("logsOffset", "0")
        begin = int(offset) if offset.isascii() and offset.isdigit() else 0
        body = {"templateID": template_id, "buildID": build_id, "logs": [], "logEntries": []}
        try:
            build = self.builds.get(template_id, build_id, by=by)
        except errors.BuildNotFoundError:
            await self._require_built(template_id, build_id, by)
            return json_response({**body, "status": "ready"})
        entries = (await self.builds.log_entries(build))[begin : begin + MOST_LISTED]
        reason = {} if build.reason is None else {"reason": build.reason}
        return json_response({**body, "logEntries": entries, "status": build.status, **reason})

    async def _require_built(self, template_id: str, build_id: str, by: Principal) -> None:
        """Builds of other nodes are known once they are done."""
        template = await self.templates.find(template_id, account_id=by.account_id)
        if build_id not in (template.archives or {}).values():
            raise errors.BuildNotFoundError

    async def _logs(self, request: Request, by: Principal) -> Response:
        build = self.builds.get(*_ids(request), by=by)
        return json_response({"logs": (await self.builds.log_entries(build))[-MOST_LISTED:]})

    async def _upload_link(self, request: Request, by: Principal) -> Response:
        template_id, files_hash = request.path_params["template"], request.path_params["files"]
        if not self.builds.has_template(template_id, by=by):
            raise errors.BuildNotFoundError
        url = request.url.remove_query_params(list(request.query_params))
        signature = self.tokens.issue(
            by.account_id, f"{template_id}/{files_hash}", at=self.builds.clock.now()
        )
        is_there = await self.builds.is_uploaded(template_id, files_hash, account_id=by.account_id)
        link = str(url.include_query_params(signature=signature))
        return json_response({"present": is_there, "url": link}, 201)

    async def _refuse(self, _request: Request, _by: Principal) -> Response:
        raise errors.NotOfferedError("Builds of Dockerfiles through a registry are not supported.")


def _ids(request: Request) -> tuple[str, str]:
    return request.path_params["template"], request.path_params["build"]


def _requested(build: Build) -> Mapping[str, Any]:
    names = [build.wanted.name.name]
    return {
        "templateID": build.template_id,
        "buildID": build.build_id,
        "public": False,
        "names": names,
        "aliases": names,
        "tags": list(build.wanted.tags),
    }
