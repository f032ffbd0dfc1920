"""The use cases of templates. Each reads the clock once."""

from dataclasses import asdict
from datetime import datetime

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.principal import Principal
from sandyard.platform.templates.errors import TemplateNotFoundError
from sandyard.platform.templates.model import (
    NewTemplate,
    Template,
    TemplateChanges,
    TemplateFilter,
    TemplateSort,
    official_templates,
)
from sandyard.platform.templates.ports import TemplateStore


class Templates:
    def __init__(self, store: TemplateStore, *, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def add_official(self) -> None:
        """Make those templates that ship with the product, unless they are or were there."""
        now = self._now()
        await self._store.add_missing_official(
            [_template(each, owner=None, now=now) for each in official_templates()]
        )

    async def create(self, principal: Principal, wanted: NewTemplate) -> Template:
        """OfficialTemplateError, TemplateNameTakenError."""
        wanted.require_makeable_by(principal)
        owner = None if wanted.is_official else principal.account_id
        template = _template(wanted, owner=owner, now=self._now())
        await self._store.add_template(template)
        return template

    async def list(
        self,
        account_id: str,
        only: TemplateFilter,
        *,
        sort: TemplateSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Template]:
        """The official and public ones, and the account's own."""
        return await self._store.page_of_templates(
            account_id, only, sort=sort, limit=limit, cursor=cursor
        )

    async def get(self, account_id: str, template_id: str) -> Template:
        _require_id(template_id)
        template = await self._store.find_template(account_id, template_id)
        if template is None:
            raise TemplateNotFoundError
        return template

    async def update(
        self, principal: Principal, template_id: str, changes: TemplateChanges
    ) -> Template:
        _require_id(template_id)
        return await self._store.update_template(principal, template_id, changes, now=self._now())

    async def delete(self, principal: Principal, template_id: str) -> None:
        _require_id(template_id)
        await self._store.delete_template(principal, template_id, now=self._now())

    def _now(self) -> datetime:
        return utc_time(self._clock.now())


def _template(wanted: NewTemplate, *, owner: str | None, now: datetime) -> Template:
    return Template(
        template_id=resource_id("tpl"),
        owner_account_id=owner,
        created_at=now,
        updated_at=now,
        **asdict(wanted),
    )


def _require_id(template_id: str) -> None:
    if not is_resource_id("tpl", template_id):
        raise TemplateNotFoundError
