"""The use cases of variables and secrets. Each reads the clock once."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import resource_id
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import TransitionStore, apply_all, apply_decided
from sandyard.platform.entities.model import Listing
from sandyard.platform.projects.errors import ProjectArchivedError
from sandyard.platform.projects.model import ProjectStatus
from sandyard.platform.projects.service import Projects
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.sandboxes.errors import SandboxRecycledError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.sandboxes.secrets_model import Binding, SecretVariable
from sandyard.platform.variables import model
from sandyard.platform.variables.certificates import SandboxAuthorities
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.model import NewValue, Variable, VariableFilter
from sandyard.runtime.network_model import SecretUse
from sandyard.runtime.secrets_model import NO_SECRETS, BoundSecret, MachineSecrets


class VariableStore(TransitionStore, Protocol):
    """`apply` returns False also if one of this name was made meanwhile."""

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """All variables of these projects and sandboxes, by name."""

    async def page(self, listing: Listing[VariableFilter]) -> Page[Variable]: ...

    async def find_variable(self, holder_id: str, name: str) -> Variable | None: ...

    async def find_by_id(self, variable_id: str) -> Variable | None: ...

    async def bound_of(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """Those that are bound to hosts, of these projects and sandboxes."""

    async def uses(
        self, variable_ids: Sequence[str], *, besides: str | None = None
    ) -> Mapping[str, SecretUse]:
        """Of all runs but this one, in sum; none for one that was never used."""

    async def note_uses(self, run: str, uses: Sequence[SecretUse]) -> None:
        """Replace those of this run; secrets that are removed have none."""


class ParentResources(Protocol):
    """The projects or sandboxes that variables are set for."""

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """Raise unless this is the account's and, with `is_changed`, may be changed."""


class ParentProjects:
    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """ProjectNotFoundError, ProjectArchivedError."""
        project = await self._projects.get(account_id, holder_id)
        if is_changed and project.status is ProjectStatus.ARCHIVED:
            raise ProjectArchivedError


class ParentSandboxes:
    def __init__(self, node: SandboxNode) -> None:
        self._node = node

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """SandboxUnknownError, SandboxRecycledError."""
        sandbox = await self._node.get(holder_id, account_id=account_id)
        if is_changed and sandbox.status is Status.RECYCLED:
            raise SandboxRecycledError


_USES = actor("job", "secrets")


@wired
class Variables:
    store: VariableStore
    cipher: Cipher
    clock: Clock
    per_account: int
    authorities: SandboxAuthorities

    async def of_sandbox(self, sandbox: Sandbox) -> Mapping[str, str]:
        """The variables of the sandbox and its project, by name; the sandbox's override the
        project's. Those that are bound to hosts are placeholders. SecretUnreadableError."""
        found = await self._in_force(sandbox)
        bound = {each.name: binding for each in found if (binding := each.bound)}
        return {
            each.name: bound[each.name].placeholder
            if each.name in bound
            else self.cipher.decrypt(each.encrypted)
            for each in found
            if each.name not in bound or bound[each.name].sets_header is None
        }

    async def secrets_of(self, sandbox: Sandbox, *, run: str) -> MachineSecrets:
        """Those that are bound to hosts, for this run. SecretUnreadableError."""
        return self.issued(sandbox, await self.bound_for(sandbox, run=run))

    def issued(self, sandbox: Sandbox, bound: Sequence[BoundSecret]) -> MachineSecrets:
        """With certificates for their hosts, which the sandbox trusts."""
        if not bound:
            return NO_SECRETS
        return self.authorities.issue(sandbox.sandbox_id, bound, now=utc_time(self.clock.now()))

    async def bound_for(self, sandbox: Sandbox, *, run: str) -> Sequence[BoundSecret]:
        """With what other runs have left of their budgets. SecretUnreadableError."""
        found = [each for each in await self._in_force(sandbox) if each.binding is not None]
        limited = [each.variable_id for each in found if each.bound and each.bound.has_budget]
        uses = await self.store.uses(limited, besides=run) if limited else {}
        return [
            binding.secret(
                *(each.variable_id, each.name, self.cipher.decrypt(each.encrypted)),
                uses.get(each.variable_id),
            )
            for each in found
            if (binding := each.bound)
        ]

    async def copies_of(self, sandbox: Sandbox) -> Sequence[SecretVariable]:
        """The variables of the sandbox and its project, for another one. SecretUnreadableError."""
        return [
            SecretVariable(each.name, self.cipher.decrypt(each.encrypted), each.bound)
            for each in await self._in_force(sandbox)
        ]

    async def _in_force(self, sandbox: Sandbox) -> Sequence[Variable]:
        holders = holders_of(sandbox)
        return model.in_force(await self.store.of_holders(holders), holders)

    async def note_uses(self, run: str, uses: Sequence[SecretUse]) -> None:
        """Record what this run has used so far, and tell the owners of budgets that are used up."""
        await self.store.note_uses(run, uses)
        totals = await self.store.uses([each.id for each in uses])
        cause, notification_id = Cause.by(_USES, self.clock), resource_id("not")
        for total in totals.values():

            async def decide(use: SecretUse = total) -> Sequence[Transition[Any]]:
                return model.note_budget_reached(
                    await self.store.find_by_id(use.id),
                    requests=use.requests,
                    size=use.bytes,
                    notification_id=notification_id,
                    cause=cause,
                )

            await apply_all(self.store, decide)

    async def value(self, holder_id: str, name: str) -> str | None:
        """SecretUnreadableError."""
        found = await self.store.find_variable(holder_id, name)
        return None if found is None else self.cipher.decrypt(found.encrypted)

    async def list(
        self, holder_id: str, *, limit: int, cursor: str | None
    ) -> Page[tuple[Variable, str | None]]:
        """By name, each with its value unless it is secret. SecretUnreadableError."""
        page = await self.store.page(Listing(VariableFilter(holder_id), "name", limit, cursor))
        return Page([self.shown(each) for each in page.items], page.next_cursor)

    def shown(self, variable: Variable) -> tuple[Variable, str | None]:
        value = None if variable.is_secret else self.cipher.decrypt(variable.encrypted)
        return variable, value

    async def set(
        self,
        holder_id: str,
        name: str,
        value: str,
        *,
        is_secret: bool,
        by: Principal,
        binding: Binding | None = None,
    ) -> Variable:
        """Commands and programs started from now on get it; or its placeholder, if it is bound to
        hosts. VariablesLimitError."""
        cause, variable_id = Cause.by(by.actor, self.clock), resource_id("env")
        new = NewValue(name, is_secret, self.cipher.encrypt(value), binding)
        quota = CountQuota(ResourceKind.VARIABLES, by.account_id, self.per_account)

        async def decide() -> Transition[Variable]:
            return model.set_variable(
                await self.store.find_variable(holder_id, name),
                new,
                variable_id=variable_id,
                account_id=by.account_id,
                holder_id=holder_id,
                quota=await self.store.read_fact(quota),
                cause=cause,
            )

        return (await apply_decided(self.store, decide)).result

    async def remove(self, holder_id: str, name: str, *, by: Principal) -> None:
        """VariableNotFoundError."""
        cause = Cause.by(by.actor, self.clock)

        async def decide() -> Transition[Variable]:
            return model.remove_variable(await self.store.find_variable(holder_id, name), cause)

        await apply_decided(self.store, decide)


def holders_of(sandbox: Sandbox) -> Sequence[str]:
    """Its project and itself, whose variables override the project's."""
    return [each for each in (sandbox.project_id, sandbox.sandbox_id) if each is not None]
