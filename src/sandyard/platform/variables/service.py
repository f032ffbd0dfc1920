"""The use cases of variables and secrets. Each reads the clock once."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from sandyard.kit.changes.transitions import Cause, Transition, apply_decision
from sandyard.kit.clock import Clock
from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.changes.apply import BusyError
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.model import (
    NewValue,
    Variable,
    in_force,
    remove_variable,
    set_variable,
)
from sandyard.platform.variables.ports import VariableStore


class ParentResources(Protocol):
    """The projects or sandboxes that variables are set for."""

    async def require(self, holder_id: str, *, account_id: str, is_changed: bool) -> None:
        """Raise unless this is the account's and, with `is_changed`, may be changed."""
        ...


class SandboxInProject(Protocol):
    """A sandbox, in a project."""

    @property
    def sandbox_id(self) -> str: ...

    @property
    def project_id(self) -> str | None: ...


class Variables:
    def __init__(
        self, store: VariableStore, cipher: Cipher, *, clock: Clock, per_account: int
    ) -> None:
        self._store = store
        self._cipher = cipher
        self._clock = clock
        self._per_account = per_account

    async def of_sandbox(self, sandbox: SandboxInProject) -> Mapping[str, str]:
        """The variables of the sandbox and its project, by name; the sandbox's override the
        project's. SecretUnreadableError."""
        holders = [each for each in (sandbox.project_id, sandbox.sandbox_id) if each is not None]
        found = in_force(await self._store.of_holders(holders), holders)
        return {each.name: self._cipher.decrypt(each.encrypted) for each in found}

    async def list(self, holder_id: str) -> Sequence[tuple[Variable, str | None]]:
        """By name, each with its value unless it is secret. SecretUnreadableError."""
        return [self.shown(each) for each in await self._store.of_holders([holder_id])]

    def shown(self, variable: Variable) -> tuple[Variable, str | None]:
        value = None if variable.is_secret else self._cipher.decrypt(variable.encrypted)
        return variable, value

    async def set(
        self, holder_id: str, name: str, value: str, *, is_secret: bool, by: Principal
    ) -> Variable:
        """Commands and programs started from now on get it. VariablesLimitError."""
        cause, variable_id = Cause.by(by.actor, self._clock), resource_id("env")
        new = NewValue(name, is_secret, self._cipher.encrypt(value))
        quota = CountQuota(ResourceKind.VARIABLES, by.account_id, self._per_account)

        async def decide() -> Transition[Variable]:
            return set_variable(
                await self._store.find_variable(holder_id, name),
                new,
                variable_id=variable_id,
                account_id=by.account_id,
                holder_id=holder_id,
                quota=await self._store.read_count_quota(quota),
                cause=cause,
            )

        return (await apply_decision(decide, self._store.apply, busy=BusyError)).result

    async def remove(self, holder_id: str, name: str, *, by: Principal) -> None:
        """VariableNotFoundError."""
        cause = Cause.by(by.actor, self._clock)

        async def decide() -> Transition[Variable]:
            return remove_variable(await self._store.find_variable(holder_id, name), cause)

        await apply_decision(decide, self._store.apply, busy=BusyError)
