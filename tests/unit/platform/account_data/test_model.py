"""How the things of a deleted account go."""

import pytest

from sandyard.kit.changes.transitions import Entity
from sandyard.platform.account_data.model import remove_with_account
from tests.unit.broker.rows import FREE
from tests.unit.platform.projects.test_model import project
from tests.unit.platform.templates.test_model import ANN, CAUSE, LATER, template
from tests.unit.platform.variables.test_model import put


def test_each_goes_with_the_event_of_its_kind() -> None:
    things: list[Entity] = [template(), project(is_default=True), put(cause=CAUSE).result]
    gone = [remove_with_account(each, ANN, LATER) for each in things]
    assert [each.events[0].kind for each in gone] == [
        "template.deleted",
        "project.deleted",
        "variable.removed",
    ]
    assert gone[1].result.is_default is False


def test_what_no_account_has_is_a_mistake() -> None:
    with pytest.raises(TypeError, match="Sandbox"):
        remove_with_account(FREE, ANN, LATER)
