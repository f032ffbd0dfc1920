"""`kill -9` of a move at each of its steps, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.commands.killed_moves import Kills
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database
from tests.support.storage.moves import ON_SQL_ALONE, PARTS

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(2400)
@pytest.mark.parametrize(
    ("here", "there", "parts", "every"),
    [
        ("sqlite", "postgresql", ["broker", "platform"], 25),
        pytest.param("sqlite", "postgresql", PARTS, 1, marks=pytest.mark.torture),
        pytest.param(
            "sqlite", "postgresql", ["broker", *ON_SQL_ALONE], 1, marks=pytest.mark.torture
        ),
        pytest.param("sqlite", "dynamodb", PARTS, 1, marks=pytest.mark.torture),
        pytest.param("postgresql", "dynamodb", PARTS, 1, marks=pytest.mark.torture),
    ],
)
async def test_a_killed_move_leaves_at_most_one_engine_open_and_goes_on_or_back(
    tmp_path: Path,
    postgres_url: str,
    dynamo_url: str,
    monkeypatch: pytest.MonkeyPatch,
    here: str,
    there: str,
    parts: list[str],
    every: int,
) -> None:
    """In both directions, as the sides are exchanged after each move."""
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    url, table = await create_database(postgres_url), f"Pool{uuid4().hex[:8]}"
    kills = Kills(str(tmp_path), url, dynamo_url, table, here, there, parts, every)
    mover = kills.mover()
    await mover.prepare()
    await mover.prepare_sql_alone()
    if here != "sqlite":
        await mover.move("sqlite", here, parts=parts)
    before = {part: await mover.contents(here, part) for part in parts}
    assert all(before.values())
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.commands.killed_moves", kills.as_json()],
        env=AWS_ENVIRONMENT | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2000,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["killed"] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert lines[-1]["step"] > 5 + 6 * len(parts), "of each part: six steps"
    for line in lines:
        assert all(len(engines) <= 1 for engines in line["open"].values()), line
        assert all(engines == [line["expected"]] for engines in line["after"].values()), line
    for part, [engine] in lines[-1]["after"].items():
        assert await mover.contents(engine, part) == before[part]
