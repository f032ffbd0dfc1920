"""The Lambda handler, called as AWS calls it: a fresh process, then one event after another."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.servers.processes import clean_environment, run_command
from tests.support.services.otlp_collector import Collector, collecting
from tests.support.storage.engines import AWS_ENVIRONMENT, create_database

EVENTS = Path(__file__).parent / "lambda_events"
BASE = "/telemetry/v1"
OPERATOR = {"authorization": "Bearer telemetry-token-of-the-tests"}
SECRETS = {"TELEMETRY_ADMIN_TOKEN": "telemetry-token-of-the-tests", "API_KEY_PEPPER": "pepper"}

# What AWS's runtime does: import the handler once, then give it event after event.
RUNTIME = """
import json, sys
from sandyard.entrypoints.aws_lambda import handler
for line in sys.stdin:
    print(json.dumps(handler(json.loads(line), None)), flush=True)
"""

Call = Callable[..., tuple[int, Any]]


def event(
    kind: str, method: str, path: str, *, query: str = "", headers: dict[str, str], body: Any = None
) -> dict[str, Any]:
    """An event as AWS documents it, for this call."""
    made: dict[str, Any] = json.loads((EVENTS / f"{kind}.json").read_text())
    text = "" if body is None else json.dumps(body)
    made["rawPath"] = made["requestContext"]["http"]["path"] = path
    made["rawQueryString"] = query
    made["requestContext"]["http"]["method"] = method
    made["headers"] |= headers | {"content-length": str(len(text))}
    made["body"] = base64.b64encode(text.encode()).decode() if made["isBase64Encoded"] else text
    return made


@contextmanager
def function(kind: str, environment: dict[str, str]) -> Iterator[Call]:
    """The function in its own process; gives status and body of each call."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUNTIME],
        env=clean_environment(SECRETS | environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def call(method: str, path: str, **options: Any) -> tuple[int, Any]:
        assert process.stdin is not None
        assert process.stdout is not None
        print(
            json.dumps(event(kind, method, BASE + path, **options)), file=process.stdin, flush=True
        )
        answer = json.loads(process.stdout.readline())
        assert answer["headers"]["x-request-id"]
        body = answer["body"]
        if answer["isBase64Encoded"]:
            return answer["statusCode"], base64.b64decode(body)
        is_json = answer["headers"]["content-type"] == "application/json"
        return answer["statusCode"], json.loads(body) if is_json else body

    try:
        yield call
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


@pytest.fixture(params=["dynamodb", "postgresql"])
async def engine(
    request: pytest.FixtureRequest, dynamo_url: str, postgres_url: str
) -> dict[str, str]:
    """The settings of an engine that is ready for Telemetry."""
    if request.param == "dynamodb":
        settings = {
            "TELEMETRY_STORE": "dynamodb",
            "DDB_ENDPOINT_URL": dynamo_url,
            "TELEMETRY_TABLE_PREFIX": f"lambda-{uuid4().hex[:8]}-",
            **AWS_ENVIRONMENT,
        }
        command = ["tables", "create"]
    else:
        settings = {"DATABASE_URL": await create_database(postgres_url)}
        command = ["db", "upgrade"]
    run_command(*command, environment=settings).check_returncode()
    return settings


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.mark.parametrize("kind", ["api_gateway_v2", "function_url"])
def test_a_device_registers_sends_and_is_read_through_events(
    kind: str, engine: dict[str, str], collector: Collector
) -> None:
    traced = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_SAMPLER_ARG": "1"}
    hardware_id, boot_id, now = "AA:BB:CC:00:00:01", str(uuid4()), int(time.time() * 1000)
    readings = [
        {
            "hardware_id": hardware_id,
            "timestamp_ms": now + number,
            "batch_id": f"{number}",
            "boot_id": boot_id,
            "firmware_version": "1.0.16",
            "sensors": {"bme280_temp_c": 20.5 + number},
            "sensor_status": {"bme280": "ok"},
        }
        for number in range(3)
    ]
    with function(kind, engine | traced) as call:
        status, made = call("POST", "/api-keys", headers=OPERATOR)
        assert status == 201
        device = {"x-api-key": made["api_key"]}
        registration = {
            "hardware_id": hardware_id,
            "boot_id": boot_id,
            "firmware_version": "1.0.16",
            "capabilities": {"sensors": ["bme280"]},
        }
        assert call("POST", "/register", headers=device, body=registration)[0] == 200
        status, sent = call("POST", "/data", headers=device, body={"readings": readings})
        assert (status, len(sent["acknowledged_batch_ids"])) == (200, 3)
        [root] = [each for each in collector.spans if each.name == f"POST {BASE}/data"]
        assert any(each.parent_id == root.span_id for each in collector.spans), "its engine's"
        status, again = call("POST", "/data", headers=device, body=readings[0])
        assert (status, again["duplicate_batch_ids"]) == (200, ["0"])
        path = f"/devices/{hardware_id}"
        status, page = call(
            "GET",
            f"{path}/readings",
            query=f"from={now + 1}&to={now + 2}&limit=1",
            headers=OPERATOR,
        )
        assert [each["batch_id"] for each in page["readings"]] == ["2"]
        query = f"from={now + 1}&limit=1&cursor={page['next_cursor']}"
        _, page = call("GET", f"{path}/readings", query=query, headers=OPERATOR)
        assert [each["batch_id"] for each in page["readings"]] == ["1"]
        _, table = call("GET", f"{path}/export", query="format=csv", headers=OPERATOR)
        assert len(table.splitlines()) == 4
        _, file = call("GET", f"{path}/export", query="format=parquet", headers=OPERATOR)
        assert file[:4] == file[-4:] == b"PAR1"
        status, refused = call("POST", "/data", headers={"x-api-key": "0" * 64}, body=readings[0])
        assert (status, refused["error"]["code"]) == (401, "INVALID_API_KEY")


def test_a_function_without_an_engine_that_outlives_it_is_refused() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", RUNTIME],
        env=clean_environment(SECRETS),
        input="{}\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "TELEMETRY_STORE: must be dynamodb, or DATABASE_URL must be set" in ran.stderr
