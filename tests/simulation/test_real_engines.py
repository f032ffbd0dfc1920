"""The same runs on the real engines: time is virtual, their answers are not."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.simulation.failures import require_none
from tests.simulation.schedule import Schedule
from tests.simulation.servers import Servers

FIXED = [
    ("broker", "sqlite", Schedule(1, 100)),
    ("broker", "postgresql", Schedule(1, 100)),
    ("broker", "dynamodb", Schedule(2, 100)),
    ("platform", "sqlite", Schedule(32, 60)),
    ("platform", "postgresql", Schedule(48, 60)),
    ("previews", "sqlite", Schedule(1, 60)),
    ("previews", "postgresql", Schedule(8, 60)),
]
"""A seed that failed joins them."""


@pytest.fixture(autouse=True)
def chance() -> Iterator[None]:
    state = random.getstate()
    yield
    random.setstate(state)


@pytest.mark.parametrize(("part", "engine", "schedule"), FIXED, ids=str)
def test_what_was_answered_is_true_on_a_real_engine(
    part: str, engine: str, schedule: Schedule, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fixtures = {"postgresql": "postgres_url", "dynamodb": "dynamo_url"}
    address = request.getfixturevalue(fixtures[engine]) if engine in fixtures else str(tmp_path)
    again = partial(Servers(engine, address).simulate, part)
    outcome = again(schedule)
    require_none(outcome, again, tmp_path / "failed")
    assert outcome.operations == schedule.operations
    assert any(outcome.faults.values())
