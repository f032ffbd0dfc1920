"""The calls about templates and their tags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sandyard.e2b_api.control import Body, Endpoint, body_of
from sandyard.e2b_api.envd.connect import json_response
from sandyard.e2b_api.model import build_id_of, iso, tags_body, template_body
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.templates.model import Template

Name = Annotated[str, Field(min_length=1)]
Tags = Annotated[list[str], Field(min_length=1)]


class AssignTagsBody(Body):
    target: Name
    tags: Tags


class RemoveTagsBody(Body):
    name: Name
    tags: Tags


class TemplateChangesBody(Body):
    public: bool


@dataclass(frozen=True, slots=True)
class TemplateCalls:
    templates: TemplateFinder
    disk_mb: int

    def endpoints(self) -> Sequence[Endpoint]:
        read, run, admin = Scope.READ, Scope.RUN, Scope.ADMIN
        one = "/templates/{template}"
        return (
            Endpoint("GET", "/templates", self._list, read),
            Endpoint("GET", "/v2/templates", self._list, read),
            Endpoint("GET", "/default-templates", self._list, read),
            Endpoint("GET", "/templates/aliases/{template:path}", self._alias, read),
            Endpoint("POST", "/templates/tags", self._assign_tags, run),
            Endpoint("DELETE", "/templates/tags", self._remove_tags, run),
            Endpoint("GET", one, self._get, read),
            Endpoint("GET", f"{one}/tags", self._tags, read),
            Endpoint("DELETE", one, self._delete, run),
            Endpoint("PATCH", one, self._change, admin),
            Endpoint("PATCH", f"/v2{one}", self._change, admin),
        )

    async def _list(self, _request: Request, by: Principal) -> Response:
        found = await self.templates.list(by.account_id)
        return json_response([template_body(each, self.disk_mb) for each in found])

    async def _get(self, request: Request, by: Principal) -> Response:
        return json_response(self._with_builds(await self._find(request, by)))

    async def _alias(self, request: Request, by: Principal) -> Response:
        template = await self._find(request, by)
        is_public = template.is_public or template.is_official
        return json_response({"templateID": template.template_id, "public": is_public})

    async def _tags(self, request: Request, by: Principal) -> Response:
        return json_response(tags_body(await self._find(request, by)))

    async def _assign_tags(self, request: Request, by: Principal) -> Response:
        body = await body_of(request, AssignTagsBody)
        build_id = await self.templates.assign(body.target, body.tags, by=by)
        return json_response({"buildID": build_id, "tags": body.tags}, 201)

    async def _remove_tags(self, request: Request, by: Principal) -> None:
        body = await body_of(request, RemoveTagsBody)
        await self.templates.remove_tags(body.name, body.tags, by=by)

    async def _delete(self, request: Request, by: Principal) -> None:
        await self.templates.delete(request.path_params["template"], by=by)

    async def _change(self, request: Request, by: Principal) -> Response:
        name, body = request.path_params["template"], await body_of(request, TemplateChangesBody)
        await self.templates.publish(name, is_public=body.public, by=by)
        return json_response({"names": [name]})

    async def _find(self, request: Request, by: Principal) -> Template:
        name = request.path_params["template"]
        return await self.templates.find(name, account_id=by.account_id)

    def _with_builds(self, template: Template) -> Mapping[str, Any]:
        body = template_body(template, self.disk_mb)
        at = {"createdAt": iso(template.created_at), "updatedAt": iso(template.updated_at)}
        size = {name: body[name] for name in ("cpuCount", "memoryMB", "diskSizeMB", "envdVersion")}
        known = dict.fromkeys((template.archives or {}).values()) or {build_id_of(template): None}
        builds = [{"buildID": each, "status": "ready", **at, **size} for each in known]
        return {**body, "builds": builds}
