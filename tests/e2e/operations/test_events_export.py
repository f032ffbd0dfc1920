"""`sandyard events export`: to a file, to standard output, and to S3."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sandyard.kit.sql.database import SqliteDatabase
from sandyard.telemetry.stores.sql import MIGRATIONS
from tests.support.clocks import ManualClock
from tests.support.servers.processes import run_command
from tests.support.storage.engines import AWS_ENVIRONMENT
from tests.support.telemetry.engines import hardware, on_sql, registration, service_on

DEVICES = 5
THEN = 1_768_464_000
"""2026-01-15T08:00:00Z."""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data dir in which devices have registered and been renamed, a day apart."""

    async def fill() -> None:
        database = SqliteDatabase(tmp_path / "telemetry.db", schema="telemetry")
        await MIGRATIONS.upgrade(database)
        clock = ManualClock(THEN)
        service = service_on(on_sql(database, clock=clock), clock)
        for number in range(DEVICES):
            await service.register(registration(hardware(number)), key_id="k")
        clock.advance(86_400)
        for number in range(DEVICES):
            await service.rename_device(hardware(number), f"device {number}")
        await database.close()

    asyncio.run(fill())
    return tmp_path


def export(data_dir: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    place = {"DATA_DIR": str(data_dir)}
    return run_command("events", "export", *arguments, environment=place | environment)


def kinds(lines: bytes | str) -> list[str]:
    return [json.loads(line)["kind"] for line in lines.splitlines()]


def test_to_standard_output_the_oldest_first(data_dir: Path) -> None:
    done = export(data_dir, "--from", "2026-01-01")
    assert done.returncode == 0, done.stderr
    assert kinds(done.stdout) == ["device.registered"] * DEVICES + ["device.renamed"] * DEVICES
    assert done.stderr.strip() == "10 events"


def test_to_a_file_that_only_its_owner_reads(data_dir: Path) -> None:
    target = data_dir / "out.jsonl"
    done = export(data_dir, "--from", "2026-01-01", "--to", "2026-01-16", str(target))
    assert done.returncode == 0, done.stderr
    assert kinds(target.read_bytes()) == ["device.registered"] * DEVICES
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("to", "written"),
    [
        ("2026-01-15T08:00:00Z", 0),
        ("2026-01-15T09:00:00.000+01:00", 0),
        ("2026-01-15T09:00:00.5+01:00", DEVICES),
        ("2026-01-15t03:00:01-05:00", DEVICES),
    ],
)
def test_times_may_have_any_offset(data_dir: Path, to: str, written: int) -> None:
    done = export(data_dir, "--from", "2026-01-01", "--to", to)
    assert (done.returncode, len(kinds(done.stdout))) == (0, written), done.stderr


def test_what_can_not_be_written_is_one_line(data_dir: Path) -> None:
    done = export(data_dir, "--from", "2026-01-01", "--to", "2026-02-01", "/no/such/folder/x")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_unknown_parts_and_times_that_make_no_span_are_refused(data_dir: Path) -> None:
    assert export(data_dir, "--from", "2026-01-02", "--to", "2026-01-01").returncode == 2
    assert export(data_dir, "--from", "2026-01-01", "--part", "nothing").returncode == 2
    refused = export(data_dir, "--from", "yesterday")
    assert (refused.returncode, "2026-11-16T09:00:00+01:00" in refused.stderr) == (2, True)


@pytest.fixture
def s3_url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in AWS_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def test_to_an_object_in_s3(data_dir: Path, s3_url: str) -> None:
    client = boto3.client("s3", endpoint_url=s3_url, region_name="us-east-1")
    client.create_bucket(Bucket="audit")
    there = {"AWS_ENDPOINT_URL": s3_url, "AWS_REGION": "us-east-1", **AWS_ENVIRONMENT}
    span = ("--from", "2026-01-01", "--to", "2026-02-01")
    done = export(data_dir, *span, "s3://audit/2026/all.jsonl", **there)
    assert done.returncode == 0, done.stderr
    stored = client.get_object(Bucket="audit", Key="2026/all.jsonl")["Body"].read()
    assert len(kinds(stored)) == 2 * DEVICES
    missing = export(data_dir, *span, "s3://no-such-bucket/x", **there)
    assert missing.returncode == 1
    assert "NoSuchBucket" in missing.stderr
