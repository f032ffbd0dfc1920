"""Calls about the variables and secrets of projects and sandboxes."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import Field, StrictBool, StrictStr

from sandyard.kit.http.schemas import PageAnswer, PageRequest, Paging, eg
from sandyard.kit.patterns import NO_NUL, pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal
from sandyard.platform.access.routes import Caller, account_routes, run_routes
from sandyard.platform.http.fields import Answer, RequestBody
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.variables.model import Variable
from sandyard.platform.variables.service import ParentResources, Variables

NAME = pattern(
    r"^[A-Za-z_][A-Za-z0-9_]*$", "must be letters, digits and _, and begin with no digit"
)
Value = Annotated[StrictStr, Field(max_length=32 * 1024, pattern=NO_NUL)]


class VariableBody(RequestBody):
    value: Value = eg("postgres://app@db/shop")
    secret: StrictBool = eg(True, False, description="Its value is never shown again")


class VariableAnswer(Answer):
    name: str = eg("DATABASE_URL")
    is_secret: bool = eg(True)
    value: str | None = Field(description="Null if it is secret")
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")

    @classmethod
    def of(cls, variable: Variable, value: str | None) -> Self:
        return super().of(variable, value=value)


class VariableList(PageAnswer):
    variables: list[VariableAnswer]
    next_cursor: str | None


VariableName = Annotated[
    str, Path(max_length=255, pattern=NAME, description="The name of the environment variable")
]
_ProjectId = Annotated[str, Path(description="The id from the response that created it")]


class _Calls:
    """The calls that projects and sandboxes share."""

    def __init__(self, variables: Variables, parents: ParentResources) -> None:
        self._variables = variables
        self._parents = parents

    async def list(self, holder_id: str, caller: Principal, paging: PageRequest) -> VariableList:
        await self._require(holder_id, caller, is_changed=False)
        page = await self._variables.list(holder_id, **paging)
        return VariableList.of(page, lambda each: VariableAnswer.of(*each))

    async def set(
        self, holder_id: str, name: str, body: VariableBody, caller: Principal
    ) -> VariableAnswer:
        await self._require(holder_id, caller, is_changed=True)
        variable = await self._variables.set(
            holder_id, name, body.value, is_secret=body.secret, by=caller
        )
        return VariableAnswer.of(*self._variables.shown(variable))

    async def remove(self, holder_id: str, name: str, caller: Principal) -> None:
        await self._require(holder_id, caller, is_changed=True)
        await self._variables.remove(holder_id, name, by=caller)

    async def _require(self, holder_id: str, caller: Principal, *, is_changed: bool) -> None:
        account_id = caller.account_id
        await self._parents.require(holder_id, account_id=account_id, is_changed=is_changed)


def create_sandbox_env_router(
    variables: Variables, sandboxes: ParentResources, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    path = f"{prefix}/sandboxes/{{sandbox_id}}/env"
    routes = run_routes(guard, prefix=path, tag="environment")
    calls = _Calls(variables, sandboxes)

    @routes.get("", "List a sandbox's variables", 404, 409)
    async def list_sandbox_variables(
        caller: Caller, sandbox_id: SandboxId, paging: Paging
    ) -> VariableList:
        """By name; only its own, not its project's. Values of secrets are not shown."""
        return await calls.list(sandbox_id, caller, paging)

    @routes.put("/{name}", "Set a variable of a sandbox", 404, 409)
    async def set_sandbox_variable(
        caller: Caller, sandbox_id: SandboxId, name: VariableName, body: VariableBody
    ) -> VariableAnswer:
        """Overrides that of its project. Applies to commands and programs that start from now
        on."""
        return await calls.set(sandbox_id, name, body, caller)

    @routes.delete("/{name}", "Remove a variable of a sandbox", 404, 409, status_code=204)
    async def remove_sandbox_variable(
        caller: Caller, sandbox_id: SandboxId, name: VariableName
    ) -> None:
        """Running programs keep it."""
        await calls.remove(sandbox_id, name, caller)

    return routes.router


def create_project_env_router(
    variables: Variables, projects: ParentResources, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    path = f"{prefix}/projects/{{project_id}}/env"
    routes = account_routes(guard, prefix=path, tag="environment")
    calls = _Calls(variables, projects)

    @routes.get("", "List a project's variables", 404, 409)
    async def list_project_variables(
        caller: Caller, project_id: _ProjectId, paging: Paging
    ) -> VariableList:
        """By name. Values of secrets are not shown."""
        return await calls.list(project_id, caller, paging)

    @routes.put("/{name}", "Set a variable of a project", 404, 409)
    async def set_project_variable(
        caller: Caller, project_id: _ProjectId, name: VariableName, body: VariableBody
    ) -> VariableAnswer:
        """For all its sandboxes. Applies to commands and programs that start from now on."""
        return await calls.set(project_id, name, body, caller)

    @routes.delete("/{name}", "Remove a variable of a project", 404, 409, status_code=204)
    async def remove_project_variable(
        caller: Caller, project_id: _ProjectId, name: VariableName
    ) -> None:
        """Running programs keep it."""
        await calls.remove(project_id, name, caller)

    return routes.router
