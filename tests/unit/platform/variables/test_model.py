"""Every decision about variables, at its edges."""

from dataclasses import replace

import pytest

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.variables.errors import VariableNotFoundError, VariablesLimitError
from sandyard.platform.variables.model import (
    NewValue,
    Variable,
    in_force,
    remove_variable,
    set_variable,
)

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 1000)
QUOTA = CountQuota(ResourceKind.VARIABLES, "prj-1", limit=2)


def put(
    before: Variable | None = None,
    *,
    name: str = "TOKEN",
    holder: str = "prj-1",
    quota: CountQuota = QUOTA,
    cause: Cause = CAUSE,
) -> Transition[Variable]:
    value = NewValue(name, is_secret=True, encrypted=f"cipher {cause.at_ms}")
    return set_variable(
        before,
        value,
        variable_id="var-1",
        account_id="1" * 12,
        holder_id=holder,
        quota=quota,
        cause=cause,
    )


def test_no_event_holds_a_value() -> None:
    made = put()
    changed = put(made.result, cause=LATER)
    assert [each.events[0].kind for each in (made, changed)] == [
        "variable.created",
        "variable.updated",
    ]
    assert "cipher" not in str([made.events, changed.events])
    assert "cipher" not in repr(changed.result)
    assert changed.result.updated_at > changed.result.created_at


def test_the_limit_holds_for_new_ones_alone() -> None:
    full = QUOTA.with_count(2)
    with pytest.raises(VariablesLimitError):
        put(quota=full)
    assert put(quota=QUOTA.with_count(1)).preconditions == (QUOTA,)
    assert put(put().result, quota=full).preconditions == ()


def test_what_is_not_there_is_not_removed() -> None:
    assert remove_variable(put().result, LATER).events[0].kind == "variable.removed"
    with pytest.raises(VariableNotFoundError):
        remove_variable(None, LATER)


def test_a_sandbox_s_own_goes_before_its_project_s() -> None:
    project, own = put().result, put(holder="sbx-1").result
    other = put(name="OTHER").result
    found = in_force([own, project, other], ["prj-1", "sbx-1"])
    assert {each.name: each.holder_id for each in found} == {"TOKEN": "sbx-1", "OTHER": "prj-1"}
