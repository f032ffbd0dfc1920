"""A variable of a project or a sandbox, and the decisions about it, without any I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import ClassVar

from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.variables.errors import VariableNotFoundError, VariablesLimitError


@dataclass(frozen=True, slots=True)
class Variable:
    SUBJECT: ClassVar[str] = "variable_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    variable_id: str
    owner_account_id: str
    holder_id: str
    """The project or the sandbox that it is set for."""
    name: str
    is_secret: bool
    """Whether its value is never shown again."""
    encrypted: str = field(repr=False, metadata=SECRET)
    created_at: datetime
    updated_at: datetime
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class NewValue:
    name: str
    is_secret: bool
    encrypted: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VariableFilter:
    holder_id: str


def set_variable(
    variable: Variable | None,
    value: NewValue,
    *,
    variable_id: str,
    account_id: str,
    holder_id: str,
    quota: CountQuota,
    cause: Cause,
) -> Transition[Variable]:
    """Create it, or replace its value. VariablesLimitError."""
    if variable is not None:
        after = replace(
            variable,
            is_secret=value.is_secret,
            encrypted=value.encrypted,
            updated_at=cause.at,
        )
        return changed(variable, after, "variable.updated", cause)
    quota.require(VariablesLimitError)
    new = Variable(
        variable_id=variable_id,
        owner_account_id=account_id,
        holder_id=holder_id,
        name=value.name,
        is_secret=value.is_secret,
        encrypted=value.encrypted,
        created_at=cause.at,
        updated_at=cause.at,
    )
    return created(new, "variable.created", cause, preconditions=(quota,))


def remove_variable(variable: Variable | None, cause: Cause) -> Transition[Variable]:
    if variable is None:
        raise VariableNotFoundError
    return removed(variable, "variable.removed", cause)


def in_force(variables: Iterable[Variable], holders: Sequence[str]) -> Sequence[Variable]:
    """One of each name; those of later holders override those of earlier ones."""
    by_name: dict[str, Variable] = {}
    for variable in sorted(variables, key=lambda each: holders.index(each.holder_id)):
        by_name[variable.name] = variable
    return list(by_name.values())
