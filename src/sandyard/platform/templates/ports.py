"""What the templates need of an engine. Every method raises UnavailableError when it is away."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.principal import Principal
from sandyard.platform.templates.model import (
    Template,
    TemplateChanges,
    TemplateFilter,
    TemplateSort,
)


class TemplateStore(Protocol):
    """No method sees a template that was deleted, or somebody else's private one."""

    async def add_template(self, template: Template) -> None:
        """Keep it; TemplateNameTakenError."""
        ...

    async def add_missing_official(self, templates: Sequence[Template]) -> None:
        """Keep those whose name no official template has or, being deleted since, had."""
        ...

    async def find_template(self, account_id: str, template_id: str) -> Template | None: ...

    async def page_of_templates(
        self,
        account_id: str,
        only: TemplateFilter,
        *,
        sort: TemplateSort,
        limit: int,
        cursor: str | None,
    ) -> Page[Template]: ...

    async def update_template(
        self, principal: Principal, template_id: str, changes: TemplateChanges, *, now: datetime
    ) -> Template:
        """TemplateNotFoundError, TemplateReadOnlyError, TemplateNameTakenError."""
        ...

    async def delete_template(
        self, principal: Principal, template_id: str, *, now: datetime
    ) -> None:
        """TemplateNotFoundError, TemplateReadOnlyError. Sandboxes made from it go on."""
        ...
