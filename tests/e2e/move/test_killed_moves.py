"""`kill -9` of a move at each of its steps, in real processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.storage.engines import create_database
from tests.support.storage.filled_stores import settings_on
from tests.support.storage.moves import Mover

ROOT = Path(__file__).parents[3]


@pytest.mark.torture
async def test_a_killed_move_leaves_at_most_one_engine_open_and_goes_on_or_back(
    tmp_path: Path, postgres_url: str
) -> None:
    url = await create_database(postgres_url)
    mover = Mover(settings_on(postgres_url=url), tmp_path)
    await mover.prepare_sqlite()
    before = await mover.contents("sqlite", "broker")
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.commands.killed_moves", str(tmp_path), url],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) > 8
    for line in lines:
        assert all(len(engines) <= 1 for engines in line["open"].values()), line
        assert all(engines == [line["expected"]] for engines in line["after"].values()), line
    [engine] = await mover.open_engines("broker", "sqlite", "postgresql")
    assert await mover.contents(engine, "broker") == before
