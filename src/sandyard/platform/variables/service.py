"""The use cases of variables and secrets. Each reads the clock once."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.clock import Clock
from sandyard.kit.ids import resource_id
from sandyard.kit.paging import Page
from sandyard.kit.wired import wired
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.apply import TransitionStore, apply_decided
from sandyard.platform.entities.model import Listing
from sandyard.platform.projects.errors import ProjectArchivedError
from sandyard.platform.projects.model import ProjectStatus
from sandyard.platform.projects.service import Projects
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.sandboxes.errors import SandboxRecycledError
from sandyard.platform.sandboxes.model import Sandbox, Status
from sandyard.platform.sandboxes.node import SandboxNode
from sandyard.platform.variables import model
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.model import NewValue, Variable, VariableFilter


class VariableStore(TransitionStore, Protocol):
    """`apply` returns False also if one of this name was made meanwhile."""

    async def of_holders(self, holder_ids: Sequence[str]) -> Sequence[Variable]:
        """All variables of these projects and sandboxes, by name."""

    async def page(self, listing: Listing[VariableFilter]) -> Page[Variable]: ...

    async def find_variable(self, holder_id: str, name: str) -> Variable | None: ...


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


@wired
class Variables:
    store: VariableStore
    cipher: Cipher
    clock: Clock
    per_account: int

    async def of_sandbox(self, sandbox: Sandbox) -> Mapping[str, str]:
        """The variables of the sandbox and its project, by name; the sandbox's override the
        project's. SecretUnreadableError."""
        holders = [each for each in (sandbox.project_id, sandbox.sandbox_id) if each is not None]
        found = model.in_force(await self.store.of_holders(holders), holders)
        return {each.name: self.cipher.decrypt(each.encrypted) for each in found}

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
        self, holder_id: str, name: str, value: str, *, is_secret: bool, by: Principal
    ) -> Variable:
        """Commands and programs started from now on get it. VariablesLimitError."""
        cause, variable_id = Cause.by(by.actor, self.clock), resource_id("env")
        new = NewValue(name, is_secret, self.cipher.encrypt(value))
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
