"""Which sandboxes are listed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandyard.e2b_api.sandboxes.service import BUILDER, SandboxSelection
from sandyard.platform.sandboxes.model import Status
from tests.unit.platform.sandboxes.examples import NOW, SANDBOX

SECOND = timedelta(seconds=1)
RUNNING = replace(
    SANDBOX,
    status=Status.RUNNING,
    started_at=NOW,
    timeout_at=NOW + SECOND,
    metadata={"a": "1", "b": "2"},
)
ALL = SandboxSelection(frozenset({"running", "paused"}), {})


@pytest.mark.parametrize(
    ("changes", "is_listed"),
    [
        ({}, True),
        ({"status": Status.STOPPED}, True),
        ({"status": Status.RECYCLED}, False),
        ({"timeout_at": NOW, "recycle_on_timeout": True}, False),
        ({"name": f"{BUILDER}1"}, False),
    ],
)
def test_sandboxes_that_are_gone_or_build_templates_are_not_listed(
    changes: dict[str, Any], is_listed: bool
) -> None:
    assert ALL.has(replace(RUNNING, **changes), NOW) is is_listed


@pytest.mark.parametrize(
    ("filters", "is_listed"),
    [
        ({"states": frozenset({"paused"})}, False),
        ({"metadata": {"a": "1"}}, True),
        ({"metadata": {"a": "2"}}, False),
        ({"metadata": {"c": "1"}}, False),
        ({"started_after": NOW - SECOND}, True),
        ({"started_after": NOW}, True),
        ({"started_after": NOW + SECOND}, False),
    ],
)
def test_lists_can_be_narrowed(filters: dict[str, Any], is_listed: bool) -> None:
    assert replace(ALL, **filters).has(RUNNING, NOW) is is_listed
