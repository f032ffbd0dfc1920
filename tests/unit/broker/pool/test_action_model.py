"""What an operator may do to a sandbox in each state."""

from dataclasses import replace

import pytest

from sandyard.broker.pool.action_model import Action, allowed_actions, decide_action
from sandyard.broker.pool.errors import AlreadyLeasedError, TransitionNotAllowedError
from sandyard.broker.pool.model import Sandbox, Status
from tests.unit.broker.rows import FREE, LEASED, PENDING, STALE, cause

HELD = replace(FREE, status=Status.HELD)
ONCE_LEASED = replace(LEASED, status=Status.HELD)
FAILED = replace(PENDING, status=Status.DELETION_FAILED)


@pytest.mark.parametrize(
    ("row", "allowed"),
    [
        pytest.param(FREE, ["quarantine", "hold"], id="available"),
        pytest.param(LEASED, ["extend", "replace", "release", "hold"], id="allocated"),
        pytest.param(STALE, ["restore", "release", "hold"], id="stale"),
        pytest.param(HELD, ["restore", "release", "hold"], id="held"),
        pytest.param(ONCE_LEASED, ["release", "hold"], id="held after a lease"),
        pytest.param(PENDING, ["hold"], id="pending deletion"),
        pytest.param(FAILED, ["retry-deletion", "hold"], id="deletion failed"),
    ],
)
def test_exactly_the_allowed_actions_are_accepted(row: Sandbox, allowed: list[str]) -> None:
    assert allowed_actions(row) == allowed
    for action in Action:
        if action in allowed:
            assert decide_action(row, action, cause()).result != row
        else:
            with pytest.raises((TransitionNotAllowedError, AlreadyLeasedError)):
                decide_action(row, action, cause())
