"""A variable of a project or a sandbox, and the decisions about it, without any I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from sandyard.kit.changes.transitions import SECRET, Cause, Transition, changed, created, removed
from sandyard.platform.notifications.model import Notice, NotificationType, create_notification
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.sandboxes.secrets_model import Binding
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
    binding: Mapping[str, Any] | None = None
    """A `Binding` as recorded: to which hosts it is bound."""
    budget_reached_at: datetime | None = None
    sequence: int = 0

    @property
    def bound(self) -> Binding | None:
        return None if self.binding is None else Binding.of(self.binding)


@dataclass(frozen=True, slots=True)
class NewValue:
    name: str
    is_secret: bool
    encrypted: str = field(repr=False)
    binding: Binding | None = None


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
            binding=_recorded(value.binding, variable.bound),
            budget_reached_at=None,
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
        binding=_recorded(value.binding, None),
    )
    return created(new, "variable.created", cause, preconditions=(quota,))


def _recorded(binding: Binding | None, before: Binding | None) -> Mapping[str, Any] | None:
    known = None if before is None else before.placeholder
    return None if binding is None else binding.with_placeholder(known).recorded()


def note_budget_reached(
    variable: Variable | None, *, requests: int, size: int, notification_id: str, cause: Cause
) -> Sequence[Transition[Any]]:
    """Once, with a notification of its owner; none if its budgets are not used up."""
    binding = None if variable is None else variable.bound
    if variable is None or binding is None or variable.budget_reached_at is not None:
        return ()
    if not binding.is_used_up(requests=requests, size=size):
        return ()
    notice = Notice(
        f"The budget of {variable.name} is used up",
        f"Sandboxes have used the secret {variable.name} in {requests} requests with {size} bytes, "
        "and can't use it any more. Set it again with a larger budget.",
        NotificationType.WARNING,
        "variable",
        variable.variable_id,
    )
    return (
        changed(
            variable,
            replace(variable, budget_reached_at=cause.at),
            "variable.budget_reached",
            cause,
        ),
        create_notification(
            notice,
            notification_id=notification_id,
            account_id=variable.owner_account_id,
            cause=cause,
        ),
    )


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
