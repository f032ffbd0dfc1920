"""Calls about templates."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from sandyard.kit.http.schemas import Paging
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import SEARCHABLE, Search
from sandyard.platform.templates.model import NewTemplate, TemplateFilter, TemplateSort, Visibility
from sandyard.platform.templates.schemas import (
    NewTemplateBody,
    TemplateAnswer,
    TemplateBody,
    TemplatePage,
    stored_fields,
)
from sandyard.platform.templates.service import Templates

Exactly = Annotated[
    str | None,
    Query(min_length=1, max_length=100, pattern=SEARCHABLE, description="Exact match"),
]


_TemplateId = Annotated[str, Path(description="The id from the response that created it")]


def create_templates_router(templates: Templates, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "/templates", tag="templates")

    @routes.make("", "Create a template", 403, status_code=201)
    async def create_template(body: NewTemplateBody, caller: Caller) -> TemplateAnswer:
        """Private, unless `is_public` is set. Admins can also create official ones."""
        made = await templates.create(caller, NewTemplate(**stored_fields(body.model_dump())))
        return TemplateAnswer.of(made, account_id=caller.account_id)

    @routes.get("", "List templates")
    async def list_templates(
        caller: Caller,
        paging: Paging,
        q: Search = None,
        category: Exactly = None,
        language: Exactly = None,
        tag: Exactly = None,
        visibility: Annotated[
            Visibility | None, Query(description="Only official, public or your private templates")
        ] = None,
        sort: Annotated[
            TemplateSort, Query(description="`-` before a name: descending")
        ] = TemplateSort.NEWEST,
    ) -> TemplatePage:
        """Official and public templates, and your own. `q` searches name and description."""
        only = TemplateFilter(q, category, language, tag, visibility)
        page = await templates.list(caller.account_id, Listing(only, sort, **paging))
        return TemplatePage.of(
            page, lambda each: TemplateAnswer.of(each, account_id=caller.account_id)
        )

    @routes.get("/{template_id}", "Get a template", 404)
    async def get_template(template_id: _TemplateId, caller: Caller) -> TemplateAnswer:
        """An official or public template, or your own."""
        found = await templates.get(caller.account_id, template_id)
        return TemplateAnswer.of(found, account_id=caller.account_id)

    @routes.patch("/{template_id}", "Change a template", 403, 404, 409)
    async def update_template(
        template_id: _TemplateId, body: TemplateBody, caller: Caller
    ) -> TemplateAnswer:
        """Your own; admins can also change official and public ones."""
        changed = await templates.update(caller, template_id, stored_fields(body.sent()))
        return TemplateAnswer.of(changed, account_id=caller.account_id)

    @routes.delete("/{template_id}", "Delete a template", 403, 404, status_code=204)
    async def delete_template(template_id: _TemplateId, caller: Caller) -> None:
        """Sandboxes that were created from it are not affected."""
        await templates.delete(caller, template_id)

    return routes.router
