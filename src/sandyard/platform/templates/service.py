"""The use cases of templates. Each reads the clock once."""

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition, apply_decision
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.ids import is_resource_id, resource_id
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal
from sandyard.platform.changes.apply import BusyError, apply_all, change
from sandyard.platform.listings.model import Listing
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.templates.errors import TemplateNameTakenError, TemplateNotFoundError
from sandyard.platform.templates.model import (
    NewTemplate,
    Template,
    TemplateChanges,
    TemplateFilter,
    create_official_template,
    create_template,
    delete_template,
    official_templates,
    require_environment,
    update_template,
)
from sandyard.platform.templates.ports import RootFileSystems, TemplateStore


def new_id() -> str:
    return resource_id("tpl")


class Templates:
    def __init__(
        self,
        store: TemplateStore,
        root_file_systems: RootFileSystems,
        *,
        clock: Clock,
        per_account: int,
    ) -> None:
        self._store = store
        self._root_file_systems = root_file_systems
        self._clock = clock
        self._per_account = per_account
        self._locks = KeyedLocks()

    async def add_official(self) -> None:
        """Create the templates that ship with the product, unless they exist or were deleted."""
        cause = Cause.by(actor("system"), self._clock)

        async def decide() -> list[Transition[Template]]:
            there = await self._store.official_names()
            return [
                create_official_template(each, template_id=resource_id("tpl"), cause=cause)
                for each in official_templates()
                if each.name not in there
            ]

        # The name is taken if another server was faster.
        await apply_all(self._store, decide, retried=(TemplateNameTakenError,))

    async def create(
        self, principal: Principal, wanted: NewTemplate, *, template_id: str | None = None
    ) -> Template:
        """OfficialTemplateError, TemplateNameTakenError, TemplatesLimitError,
        EnvironmentUnknownError. `template_id` is one that was given out before."""
        require_environment(wanted.environment, await self._root_file_systems.names())
        cause, own_id = Cause.by(principal.actor, self._clock), template_id or new_id()
        quota = CountQuota(ResourceKind.TEMPLATES, principal.account_id, self._per_account)

        async def decide() -> Transition[Template]:
            return create_template(
                wanted,
                template_id=own_id,
                by=principal,
                quota=await self._store.read_count_quota(quota),
                cause=cause,
            )

        return (await apply_decision(decide, self._store.apply, busy=BusyError)).result

    async def list(self, account_id: str, listing: Listing[TemplateFilter]) -> Page[Template]:
        """The official and public ones, and the account's own."""
        return await self._store.page_of_templates(account_id, listing)

    async def get(self, account_id: str, template_id: str) -> Template:
        known = is_resource_id("tpl", template_id)
        template = await self._store.find_template(account_id, template_id) if known else None
        if template is None:
            raise TemplateNotFoundError
        return template

    async def update(
        self, principal: Principal, template_id: str, changes: TemplateChanges
    ) -> Template:
        """TemplateReadOnlyError, TemplateNameTakenError, EnvironmentUnknownError."""
        require_environment(changes.get("environment"), await self._root_file_systems.names())
        cause = Cause.by(principal.actor, self._clock)
        return await change(
            self._store,
            lambda: self.get(principal.account_id, template_id),
            lambda template: update_template(template, changes, by=principal, cause=cause),
            lock=self._locks.of(template_id),
        )

    async def delete(self, principal: Principal, template_id: str) -> None:
        """Raises TemplateReadOnlyError. Sandboxes that were created from it are not affected."""
        cause = Cause.by(principal.actor, self._clock)
        await change(
            self._store,
            lambda: self.get(principal.account_id, template_id),
            lambda template: delete_template(template, by=principal, cause=cause),
            lock=self._locks.of(template_id),
        )
