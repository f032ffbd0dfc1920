"""The calls about templates, their tags and their builds."""

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.builds.recipes import recipe_of
from sandyard.e2b_api.builds.service import Build, Builds, build_request
from sandyard.e2b_api.envd.responses import json_answer
from sandyard.e2b_api.errors import (
    AccessTokenMissingError,
    BuildNotFoundError,
    InvalidRequestError,
    NotOfferedError,
)
from sandyard.e2b_api.model import build_id_of, iso, tags_body, template_body
from sandyard.e2b_api.requests import body_of, optional_text, strings, whole_number
from sandyard.e2b_api.routes import MOST_LISTED, Route
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.e2b_api.tokens import UploadTokens
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.templates.model import Template

_CPU, _MEMORY_MB = 1, 1024


class TemplateCalls:
    def __init__(
        self, templates: TemplateFinder, builds: Builds, tokens: UploadTokens, *, disk_mb: int
    ) -> None:
        self._templates = templates
        self._builds = builds
        self._tokens = tokens
        self._disk_mb = disk_mb

    def routes(self) -> Sequence[Route]:
        read, run, admin = Scope.READ, Scope.RUN, Scope.ADMIN
        one = r"/templates/([^/]+)"
        build = r"/templates/([^/]+/builds/[^/]+)"
        return (
            Route.of("GET", r"(?:/v2)?/templates", self._list, read),
            Route.of("GET", r"/default-templates", self._list, read),
            Route.of("GET", r"/templates/aliases/(.+)", self._alias, read),
            Route.of("POST", r"/templates/tags", self._assign_tags, run),
            Route.of("DELETE", r"/templates/tags", self._remove_tags, run),
            Route.of("GET", one, self._get, read),
            Route.of("GET", rf"{one}/tags", self._tags, read),
            Route.of("DELETE", one, self._delete, run),
            Route.of("PATCH", rf"(?:/v2)?{one}", self._change, admin),
            Route.of("POST", r"/v[23]/templates", self._request, run),
            Route.of("POST", rf"/v2{build}", self._start, run),
            Route.of("GET", rf"{build}/status", self._status, read),
            Route.of("GET", rf"{build}/logs", self._logs, read),
            Route.of("GET", r"/templates/([^/]+/files/[^/]+)", self._upload_link, run),
            Route.of("POST", r"/templates(?:/.*)?", self._refuse, run),
        )

    async def upload(self, request: Request, path: str) -> Response:
        """To a link of `_upload_link`; anyone with the link may use it."""
        _, _, template_id, _, files_hash, *_ = (*path.split("/"), "")
        account_id = self._tokens.account_of(
            request.query_params.get("signature", ""), f"{template_id}/{files_hash}"
        )
        if account_id is None:
            raise AccessTokenMissingError
        await self._builds.upload(template_id, files_hash, request.stream(), account_id=account_id)
        return Response(status_code=200)

    async def _list(self, _request: Request, by: Principal, _name: str) -> Response:
        found = await self._templates.list(by.account_id)
        return json_answer([template_body(each, self._disk_mb) for each in found])

    async def _get(self, _request: Request, by: Principal, name: str) -> Response:
        template = await self._templates.find(name, account_id=by.account_id)
        return json_answer(self._with_builds(template))

    async def _alias(self, _request: Request, by: Principal, name: str) -> Response:
        template = await self._templates.find(name, account_id=by.account_id)
        body = {
            "templateID": template.template_id,
            "public": template.is_public or template.is_official,
        }
        return json_answer(body)

    async def _tags(self, _request: Request, by: Principal, name: str) -> Response:
        return json_answer(tags_body(await self._templates.find(name, account_id=by.account_id)))

    async def _assign_tags(self, request: Request, by: Principal, _name: str) -> Response:
        body = await body_of(request)
        target, tags = optional_text(body, "target"), strings(body, "tags")
        if target is None or not tags:
            raise InvalidRequestError("`target` must name a build, and `tags` its new tags.")
        build_id, _ = await self._templates.assign(target, tags, by=by)
        return json_answer({"buildID": build_id, "tags": tags}, 201)

    async def _remove_tags(self, request: Request, by: Principal, _name: str) -> Response:
        body = await body_of(request)
        name, tags = optional_text(body, "name"), strings(body, "tags")
        if name is None or not tags:
            raise InvalidRequestError("`name` must name a template, and `tags` some of its tags.")
        await self._templates.remove_tags(name, tags, by=by)
        return Response(status_code=204)

    async def _delete(self, _request: Request, by: Principal, name: str) -> Response:
        await self._templates.delete(name, by=by)
        return Response(status_code=204)

    async def _change(self, request: Request, by: Principal, name: str) -> Response:
        is_public = (await body_of(request)).get("public")
        if not isinstance(is_public, bool):
            raise InvalidRequestError("`public` must be true or false.")
        await self._templates.publish(name, is_public=is_public, by=by)
        return json_answer({"names": [name]})

    async def _request(self, request: Request, by: Principal, _name: str) -> Response:
        body = await body_of(request)
        name = optional_text(body, "name") or optional_text(body, "alias")
        if name is None:
            raise InvalidRequestError("`name` must be the template's name.")
        wanted = build_request(
            name,
            strings(body, "tags"),
            cpu=whole_number(body, "cpuCount", _CPU),
            memory_mb=whole_number(body, "memoryMB", _MEMORY_MB),
        )
        return json_answer(self._requested(await self._builds.request(wanted, by=by)), 202)

    async def _start(self, request: Request, by: Principal, named: str) -> Response:
        template_id, build_id = _both(named)
        recipe = recipe_of(await body_of(request))
        await self._builds.start(template_id, build_id, recipe, by=by)
        return Response(status_code=202)

    async def _status(self, request: Request, by: Principal, named: str) -> Response:
        template_id, build_id = _both(named)
        offset = request.query_params.get("logsOffset", "0")
        begin = int(offset) if offset.isascii() and offset.isdigit() else 0
        body = {"templateID": template_id, "buildID": build_id, "logs": [], "logEntries": []}
        try:
            build = self._builds.get(template_id, build_id, by=by)
        except BuildNotFoundError:
            await self._require_built(template_id, build_id, by)
            return json_answer({**body, "status": "ready"})
        entries = build.entries[begin : begin + MOST_LISTED]
        reason = {} if build.reason is None else {"reason": build.reason}
        return json_answer({**body, "logEntries": entries, "status": build.status, **reason})

    async def _logs(self, _request: Request, by: Principal, named: str) -> Response:
        build = self._builds.get(*_both(named), by=by)
        return json_answer({"logs": build.entries[-MOST_LISTED:]})

    async def _require_built(self, template_id: str, build_id: str, by: Principal) -> None:
        """Builds of other processes are known once they are done."""
        template = await self._templates.find(template_id, account_id=by.account_id)
        if build_id not in (template.archives or {}).values():
            raise BuildNotFoundError

    async def _upload_link(self, request: Request, by: Principal, named: str) -> Response:
        template_id, _, files_hash = named.split("/")
        if not self._builds.has_template(template_id, by=by):
            raise BuildNotFoundError
        url = request.url.remove_query_params(list(request.query_params))
        signature = self._tokens.issue(by.account_id, f"{template_id}/{files_hash}")
        is_there = self._builds.is_uploaded(template_id, files_hash, account_id=by.account_id)
        link = str(url.include_query_params(signature=signature))
        return json_answer({"present": is_there, "url": link}, 201)

    async def _refuse(self, _request: Request, _by: Principal, _name: str) -> Response:
        raise NotOfferedError("Builds of Dockerfiles through a registry are not supported.")

    def _with_builds(self, template: Template) -> Mapping[str, Any]:
        body = template_body(template, self._disk_mb)
        at = {"createdAt": iso(template.created_at), "updatedAt": iso(template.updated_at)}
        size = {name: body[name] for name in ("cpuCount", "memoryMB", "diskSizeMB", "envdVersion")}
        known = dict.fromkeys((template.archives or {}).values()) or {build_id_of(template): None}
        builds = [{"buildID": each, "status": "ready", **at, **size} for each in known]
        return {**body, "builds": builds}

    def _requested(self, build: Build) -> Mapping[str, Any]:
        names = [build.wanted.name.name]
        return {
            "templateID": build.template_id,
            "buildID": build.build_id,
            "public": False,
            "names": names,
            "aliases": names,
            "tags": list(build.wanted.tags),
        }


def _both(named: str) -> tuple[str, str]:
    template_id, _, build_id = named.split("/")
    return template_id, build_id
