"""The store of templates. Every method raises UnavailableError if it is unavailable."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from sandyard.kit.paging import Page
from sandyard.platform.changes.apply import TransitionStore
from sandyard.platform.listings.model import Listing
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.templates.model import Template, TemplateFilter


class RootFileSystems(Protocol):
    async def names(self) -> AbstractSet[str]:
        """The names of the root file systems available to sandboxes here."""
        ...


class TemplateStore(TransitionStore, Protocol):
    """Finders return no deleted templates, and no private ones of other accounts. `apply`
    raises TemplateNameTakenError."""

    async def official_names(self) -> AbstractSet[str]:
        """The names of official templates, including deleted ones."""
        ...

    async def read_count_quota(self, about: CountQuota) -> CountQuota: ...

    async def find_template(self, account_id: str, template_id: str) -> Template | None: ...

    async def page_of_templates(
        self, account_id: str, listing: Listing[TemplateFilter]
    ) -> Page[Template]: ...
