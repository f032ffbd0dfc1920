"""`sandyard move` of the Broker and Telemetry between the engines, with the check of both sides."""

import os
import sys
import time
from pathlib import Path
from subprocess import run as run_program

from benchmarks.loops import run
from benchmarks.report import Figure, Measured, Say
from tests.support.storage.engines import (
    AWS_ENVIRONMENT,
    create_database,
    dynamo_server,
    postgres_folder,
    postgres_server,
)
from tests.support.storage.filled_stores import settings_on
from tests.support.storage.moves import Mover

_RECORDS = int(os.environ.get("MOVED_RECORDS", "100000"))
_RECORDS_TO_DYNAMODB = int(os.environ.get("MOVED_RECORDS_TO_DYNAMODB", "10000"))
_LONGEST_SEC = 300
"""Of a million records between SQLite and PostgreSQL."""
_READINGS_OF_A_DEVICE = 2000


def measure(folder: Path, say: Say) -> Measured:
    with (
        postgres_folder() as data,
        postgres_server(data, is_durable=True) as url,
        dynamo_server() as dynamo,
    ):
        return _measure(folder, url, dynamo, say)


def _measure(folder: Path, url: str, dynamo: str, say: Say) -> Measured:
    figures: list[Figure] = []
    for other, records in (("postgresql", _RECORDS), ("dynamodb", _RECORDS_TO_DYNAMODB)):
        say(f"moves: filling SQLite with {records:,} records")
        data_dir = folder / other
        data_dir.mkdir()
        environment = {
            "DATABASE_URL": run(create_database(url)),
            "DDB_ENDPOINT_URL": dynamo,
            "DDB_TABLE_NAME": "Moved",
            "TELEMETRY_TABLE_PREFIX": "Moved_",
        }
        run(_fill(data_dir, environment, records))
        for source, target in (("sqlite", other), (other, "sqlite")):
            seconds, moved = _move(data_dir, environment, source, target, say)
            name = f"move of {moved:,} records from {source} to {target}"
            if other == "postgresql":
                limit = _LONGEST_SEC * max(1, moved / 1e6)
                figures.append(Figure.below(name, seconds, limit, "s"))
            else:
                figures.append(Figure(name, f"{seconds:.0f} s"))
    return Measured(figures, f"moves {_RECORDS:,} and {_RECORDS_TO_DYNAMODB:,}")


async def _fill(data_dir: Path, environment: dict[str, str], records: int) -> None:
    """A tenth sandboxes with their events, and readings with their markers."""
    os.environ.update(AWS_ENVIRONMENT)
    settings = settings_on(
        postgres_url=environment["DATABASE_URL"],
        dynamo_url=environment["DDB_ENDPOINT_URL"],
        table=environment["DDB_TABLE_NAME"],
    )
    devices = -(-records * 4 // 10 // _READINGS_OF_A_DEVICE)
    await Mover(settings, data_dir).prepare(
        sandboxes=records // 10, devices=devices, readings=records * 4 // 10 // devices
    )


def _move(
    data_dir: Path, environment: dict[str, str], source: str, target: str, say: Say
) -> tuple[float, int]:
    """The seconds, and the number of records."""
    say(f"moves: {source} to {target}")
    command = [sys.executable, "-m", "sandyard", "move", "--from", source, "--to", target]
    began = time.perf_counter()
    done = run_program(
        [*command, "--replace", "--part", "broker", "--part", "telemetry", "--data-dir", data_dir],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    counts = [line.split()[1] for line in done.stdout.splitlines() if " records, equal" in line]
    return seconds, sum(int(each.replace(",", "")) for each in counts)
