"""Calls about the variables and secrets of projects and sandboxes."""

import re
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import Field, StrictBool, StrictStr, model_validator

from sandyard.kit.http.schemas import PageAnswer, PageRequest, Paging, eg
from sandyard.kit.patterns import NO_NUL, pattern
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal
from sandyard.platform.access.routes import Caller, account_routes, run_routes
from sandyard.platform.http.fields import Answer, RequestBody
from sandyard.platform.sandboxes.http import SandboxId
from sandyard.platform.sandboxes.secrets_model import Binding
from sandyard.platform.variables.model import Variable
from sandyard.platform.variables.service import ParentResources, Variables
from sandyard.runtime.secrets_model import USUAL_HEADERS

NAME = pattern(
    r"^[A-Za-z_][A-Za-z0-9_]*$", "must be letters, digits and _, and begin with no digit"
)
_TCHARS = r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}"
_BOUND_VALUE = re.compile(r"[!-~]([ -~]{6,8190})[!-~]")
Host = Annotated[
    str,
    Field(
        pattern=pattern(
            r"^(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*(:[0-9]{1,5})?$",
            "must be a name in lower case such as api.example.com or *.example.com",
        ),
        max_length=260,
    ),
]
Method = Annotated[str, Field(pattern=pattern(r"^[A-Z]{1,20}$", "must be as GET or POST"))]
UrlPath = Annotated[
    str, Field(pattern=pattern(r"^/[!-~]*$", "must be as /v1/chat"), max_length=1000)
]
HeaderName = Annotated[str, Field(pattern=pattern(f"^{_TCHARS}$", "must be the name of a header"))]
ParameterName = Annotated[str, Field(min_length=1, max_length=64, pattern=NO_NUL)]
Budget = Annotated[int, Field(ge=1, le=1 << 60, strict=True)]
Value = Annotated[StrictStr, Field(max_length=32 * 1024, pattern=NO_NUL)]


class BindingBody(RequestBody):
    """Sandboxes get a placeholder instead of the value, which their egress proxy puts into requests
    by TLS to these hosts alone."""

    hosts: list[Host] = eg(
        ["api.example.com"],
        min_length=1,
        max_length=20,
        description="`name`, `*.name` for its subdomains; with `:port` unless that is 443",
    )
    methods: list[Method] = eg(["GET", "POST"], [], max_length=10, description="All if empty")
    paths: list[UrlPath] = eg(
        ["/v1"], [], max_length=20, description="Each with what is below it; all if empty"
    )
    headers: list[HeaderName] = eg(
        ["authorization"],
        list(USUAL_HEADERS),
        max_length=20,
        description="Headers in which the placeholder is replaced, also in basic authentication",
    )
    query: list[ParameterName] = eg(
        ["key"], [], max_length=20, description="The query parameters in which it is"
    )
    sets_header: HeaderName | None = eg(
        None,
        None,
        description="Set to the value in every such request, with no placeholder in the sandbox",
    )
    most_requests: Budget | None = eg(
        10_000, None, description="In all sandboxes together, since the secret was made"
    )
    most_bytes: Budget | None = eg(1_000_000_000, None, description="Of such requests and answers")

    def binding(self) -> Binding:
        return Binding(**self.model_dump())


class VariableBody(RequestBody):
    value: Value = eg("postgres://app@db/shop")
    secret: StrictBool = eg(True, False, description="Its value is never shown again")
    binding: BindingBody | None = eg(
        None,
        None,
        description='To which hosts it is bound, as {"hosts": ["api.example.com"]}; only of a '
        "secret, of 8 letters or more",
    )

    @model_validator(mode="after")
    def _bound_values_are_header_values(self) -> Self:
        if self.binding is not None and not (self.secret and _BOUND_VALUE.fullmatch(self.value)):
            raise ValueError("a bound variable is a secret of 8 to 8192 visible ASCII characters")
        return self


class BindingAnswer(Answer):
    hosts: list[str] = eg(["api.example.com"])
    methods: list[str] = eg(["GET", "POST"])
    paths: list[str] = eg(["/v1"])
    headers: list[str] = eg(["authorization"])
    query: list[str] = eg(["key"])
    sets_header: str | None = eg(None)
    most_requests: int | None = eg(10_000)
    most_bytes: int | None = eg(1_000_000_000)
    placeholder: str = eg("sandyard_secret_7f3k9m2p5r8t1w4y6")


class VariableAnswer(Answer):
    name: str = eg("DATABASE_URL")
    is_secret: bool = eg(True)
    value: str | None = Field(description="Null if it is secret")
    created_at: datetime = eg("2026-10-30T09:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")
    binding: BindingAnswer | None
    budget_reached_at: datetime | None = eg(None)

    @classmethod
    def of(cls, variable: Variable, value: str | None) -> Self:
        bound = variable.bound
        binding = None if bound is None else BindingAnswer.of(bound)
        return super().of(variable, value=value, binding=binding)


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
            *(holder_id, name, body.value),
            is_secret=body.secret,
            by=caller,
            binding=None if body.binding is None else body.binding.binding(),
        )
        return VariableAnswer.of(*self._variables.shown(variable))

    async def remove(self, holder_id: str, name: str, caller: Principal) -> None:
        await self._require(holder_id, caller, is_changed=True)
        await self._variables.remove(holder_id, name, by=caller)

    async def _require(self, holder_id: str, caller: Principal, *, is_changed: bool) -> None:
        account_id = caller.account_id
        await self._parents.require(holder_id, account_id=account_id, is_changed=is_changed)


def create_sandbox_env_router(
    variables: Variables, sandboxes: ParentResources, guard: AccessGuard
) -> APIRouter:
    routes = run_routes(guard, "/sandboxes/{sandbox_id}/env", tag="environment")
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
    variables: Variables, projects: ParentResources, guard: AccessGuard
) -> APIRouter:
    routes = account_routes(guard, "/projects/{project_id}/env", tag="environment")
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
