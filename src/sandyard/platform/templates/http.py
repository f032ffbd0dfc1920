"""Calls about templates."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import SEARCHABLE, Cursor, Limit, Search
from sandyard.platform.principal import Principal
from sandyard.platform.templates.model import TemplateFilter, TemplateSort, Visibility
from sandyard.platform.templates.schemas import (
    NewTemplateBody,
    TemplateAnswer,
    TemplateBody,
    TemplatePage,
)
from sandyard.platform.templates.service import Templates

Exactly = Annotated[
    str | None,
    Query(min_length=1, max_length=100, pattern=SEARCHABLE, description="As it is written there"),
]


def create_templates_router(templates: Templates, guard: AccessGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/templates", tags=["templates"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.post(
        "",
        summary="Make a template",
        status_code=201,
        response_model=TemplateAnswer,
        responses=errors(400, 401, 403, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def create_template(body: Annotated[NewTemplateBody, Body()], caller: Caller) -> Any:
        """Private, unless it is public. Admins also make official ones."""
        made = await templates.create(caller, body.wanted())
        return TemplateAnswer.of(made, account_id=caller.account_id)

    @router.get(
        "",
        summary="List templates",
        response_model=TemplatePage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_templates(
        caller: Caller,
        q: Search = None,
        category: Exactly = None,
        language: Exactly = None,
        tag: Exactly = None,
        visibility: Visibility | None = None,
        sort: TemplateSort = TemplateSort.NEWEST,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """Official and public ones, and your own. `q` looks into name and description."""
        page = await templates.list(
            caller.account_id,
            TemplateFilter(q, category, language, tag, visibility),
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        shown = [TemplateAnswer.of(each, account_id=caller.account_id) for each in page.items]
        return TemplatePage(templates=shown, next_cursor=page.next_cursor)

    @router.get(
        "/{template_id}",
        summary="Look at a template",
        response_model=TemplateAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_template(template_id: str, caller: Caller) -> Any:
        """An official or public one, or your own."""
        found = await templates.get(caller.account_id, template_id)
        return TemplateAnswer.of(found, account_id=caller.account_id)

    @router.patch(
        "/{template_id}",
        summary="Change a template",
        response_model=TemplateAnswer,
        responses=errors(400, 401, 403, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def update_template(
        template_id: str, body: Annotated[TemplateBody, Body()], caller: Caller
    ) -> Any:
        """Your own; admins also official and public ones."""
        changed = await templates.update(caller, template_id, body.changes())
        return TemplateAnswer.of(changed, account_id=caller.account_id)

    @router.delete(
        "/{template_id}",
        summary="Delete a template",
        status_code=204,
        responses=errors(401, 403, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def delete_template(template_id: str, caller: Caller) -> None:
        """Sandboxes that were made from it go on."""
        await templates.delete(caller, template_id)

    return router
