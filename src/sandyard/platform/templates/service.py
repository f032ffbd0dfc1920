"""The use cases of templates."""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.ids import is_resource_id, resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import apply_all
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.entities.service import OwnedEntities
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.templates import model
from sandyard.platform.templates.errors import TemplateNameTakenError, TemplateNotFoundError
from sandyard.platform.templates.ports import RootFileSystems, TemplateStore
from sandyard.runtime.model import IsolationMode


class Templates(OwnedEntities[model.Template, TemplateStore]):
    id_prefix = "tpl"
    not_found = TemplateNotFoundError

    def __init__(
        self,
        store: TemplateStore,
        root_file_systems: RootFileSystems,
        require_isolation: Callable[[IsolationMode | None], Awaitable[None]],
        *,
        clock: Clock,
        per_account: int,
    ) -> None:
        super().__init__(store, clock=clock)
        self._root_file_systems = root_file_systems
        self._require_isolation = require_isolation
        self._per_account = per_account

    async def add_official(self) -> None:
        """Create the templates that ship with the product, unless they exist or were deleted."""
        cause = Cause.by(actor("system"), self._clock)

        async def decide() -> list[Transition[model.Template]]:
            there = await self._store.official_names()
            return [
                model.create_official_template(each, template_id=resource_id("tpl"), cause=cause)
                for each in model.official_templates()
                if each.name not in there
            ]

        # The name is taken if another server was faster.
        await apply_all(self._store, decide, retried=(TemplateNameTakenError,))

    async def environments(self) -> AbstractSet[str]:
        """The names of the environments that templates may have."""
        return await self._root_file_systems.names()

    async def create(
        self, principal: Principal, wanted: model.NewTemplate, *, template_id: str | None = None
    ) -> model.Template:
        """OfficialTemplateError, TemplateNameTakenError, TemplatesLimitError,
        EnvironmentUnknownError, IsolationMissingError. `template_id` is one that was given out
        before."""
        await self._require_here(principal, wanted.environment, wanted.isolation)
        cause = self._cause(principal)
        quota = CountQuota(ResourceKind.TEMPLATES, principal.account_id, self._per_account)

        async def decide(template_id: str) -> Transition[model.Template]:
            return model.create_template(
                wanted,
                template_id=template_id,
                by=principal,
                quota=await self._store.read_fact(quota),
                cause=cause,
            )

        return await self._create(principal, decide, template_id)

    async def update(
        self, principal: Principal, template_id: str, changes: FieldChanges
    ) -> model.Template:
        """TemplateReadOnlyError, TemplateNameTakenError, EnvironmentUnknownError,
        IsolationMissingError."""
        await self._require_here(principal, changes.get("environment"), changes.get("isolation"))
        return await self._change(
            principal,
            template_id,
            lambda template, cause: model.update_template(
                template, changes, by=principal, cause=cause
            ),
        )

    async def delete(self, principal: Principal, template_id: str) -> None:
        """Raises TemplateReadOnlyError. Sandboxes that were created from it are not affected."""
        await self._change(
            principal,
            template_id,
            lambda template, cause: model.delete_template(template, by=principal, cause=cause),
        )

    async def _require_here(
        self, principal: Principal, environment: str | None, isolation: IsolationMode | None
    ) -> None:
        """That this node has what sandboxes of the template are to have."""
        if environment is not None and is_resource_id("img", environment):
            await self._root_file_systems.require_image(principal.account_id, environment)
        else:
            model.require_environment(environment, await self._root_file_systems.names())
        if isolation is not None:
            await self._require_isolation(isolation)
