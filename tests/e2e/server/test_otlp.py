"""Traces of a real server, as a collector receives them."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sandyard.kit.free_ports import free_port
from tests.support.broker.event_receivers import Receiver, receiving
from tests.support.servers.processes import (
    ServerProcess,
    clean_environment,
    csp_simulator,
    run_command,
    sandyard_serve,
)
from tests.support.services.otlp_collector import Collector, collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


@pytest.fixture(scope="module")
def server(
    collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """Nothing is sampled but what a caller wants; its pool is filled."""
    folder = tmp_path_factory.mktemp("traced")
    with csp_simulator(folder, "--count", "20") as provider:
        environment = {
            "PARTS": "broker",
            "CSP_BASE_URL": provider,
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_EXPORTER_OTLP_HEADERS": "api-key=of-the-tests",
            "OTEL_TRACES_SAMPLER_ARG": "0",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "EVENT_SINKS": "webhooks",
            "WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8",
        }
        with sandyard_serve(folder / "data", environment=environment) as server:
            synced = httpx.post(f"{server.url}/v1/admin/sync", headers=server.admin, timeout=60)
            assert synced.status_code == 200, synced.text
            yield server


def claim(server: ServerProcess, key: str, traceparent: str | None = None) -> httpx.Response:
    headers = server.track | {"X-Track-ID": "traced", "Idempotency-Key": key}
    headers |= {} if traceparent is None else {"traceparent": traceparent}
    answer = httpx.post(f"{server.url}/v1/allocate", headers=headers, timeout=60)
    assert answer.status_code == 201, answer.text
    return answer


def log_line(server: ServerProcess, answer: httpx.Response) -> dict[str, str]:
    """The line of this answer's request, which is written after the answer."""
    request_id = answer.headers["X-Request-ID"]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for text in server.log.read_text().splitlines():
            line: dict[str, str] = json.loads(text)
            if line.get("request_id") == request_id:
                return line
        time.sleep(0.02)
    raise AssertionError("its line was not written")


async def claimed_and_told(server: ServerProcess, collector: Collector) -> httpx.Response:
    """One claim that the caller wants traced, and its event delivered to a webhook."""
    receiver = Receiver()
    async with receiving(receiver):
        body = {"url": receiver.url, "kinds": ["lease.created"]}
        hooks = f"{server.url}/v1/admin/webhooks"
        made = await asyncio.to_thread(httpx.post, hooks, headers=server.admin, json=body)
        assert made.status_code == 201, made.text
        answer = await asyncio.to_thread(claim, server, "one", f"00-{TRACE}-{CALLER}-01")
        told = "deliver lease.created"
        await asyncio.to_thread(
            collector.wait_for, lambda: told in {span.name for span in collector.spans}
        )
    return answer


async def test_one_claim_is_one_trace_with_its_parts(
    server: ServerProcess, collector: Collector
) -> None:
    answer = await claimed_and_told(server, collector)
    root = collector.get(TRACE, "POST /v1/allocate", under=CALLER)
    assert root.attributes == {
        "http.request.method": "POST",
        "http.route": "/v1/allocate",
        "http.response.status_code": 201,
        "sandyard.request_id": answer.headers["X-Request-ID"],
    }
    store = collector.get(TRACE, "pool.claim", under=root.span_id)
    assert store.events == ("lease.created",)
    written = collector.get(TRACE, "sqlite.run_statement", under=store.span_id)
    assert written.attributes == {"db.system.name": "sqlite", "db.namespace": "broker"}
    collector.get(TRACE, "deliver lease.created", under=store.span_id)
    assert "sandyard" in collector.services
    assert collector.headers["api-key"] == "of-the-tests"
    assert log_line(server, answer)["trace_id"] == TRACE


def test_a_job_that_is_called_for_shows_what_it_asked_the_provider(
    server: ServerProcess, collector: Collector
) -> None:
    trace_id = "1" * 32
    headers = server.admin | {"traceparent": f"00-{trace_id}-{CALLER}-01"}
    httpx.post(f"{server.url}/v1/admin/sync", headers=headers, timeout=60).raise_for_status()
    root = collector.get(trace_id, "POST /v1/admin/sync", under=CALLER)
    job = collector.get(trace_id, "job sync", under=root.span_id)
    collector.get(trace_id, "provider.list_sandboxes", under=job.span_id)


def test_a_caller_that_does_not_want_a_trace_gets_its_id_in_the_log_alone(
    server: ServerProcess, collector: Collector
) -> None:
    trace_id = "2" * 32
    answer = claim(server, "two", f"00-{trace_id}-{CALLER}-00")
    assert log_line(server, answer)["trace_id"] == trace_id
    later = "3" * 32
    claim(server, "three", f"00-{later}-{CALLER}-01")
    collector.get(later, "POST /v1/allocate", under=CALLER)
    assert trace_id not in {span.trace_id for span in collector.spans}


def test_requests_that_are_not_sampled_are_not_traced(
    server: ServerProcess, collector: Collector
) -> None:
    answer = claim(server, "four")
    assert "trace_id" not in log_line(server, answer)
    own = {span.name for span in collector.spans if not span.parent_id}
    assert own <= {"job sync"}, "of the command of its own"


def test_a_job_as_a_command_of_its_own_is_traced(tmp_path: Path, collector: Collector) -> None:
    """As a scheduler starts it, also forced."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": "one-shot",
        "OTEL_TRACES_SAMPLER_ARG": "1",
    }
    command = ["jobs", "run", "sync", "--force", "--data-dir", str(tmp_path)]
    run_command(*command, environment=environment).check_returncode()
    assert "one-shot" in collector.services
    [job] = [each for each in collector.spans if each.name == "job sync" and not each.parent_id]
    collector.get(job.trace_id, "provider.list_sandboxes", under=job.span_id)


def test_a_collector_that_is_away_holds_nothing_up(tmp_path: Path) -> None:
    environment = {
        "PARTS": "telemetry",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}",
        "OTEL_TRACES_SAMPLER_ARG": "1",
    }
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        assert httpx.get(f"{server.url}/readyz", timeout=60).status_code == 200
        assert server.stop() == 0


def test_nothing_of_it_is_imported_while_it_is_off(tmp_path: Path) -> None:
    program = (
        "import sys, sandyard.entrypoints.server.serve, sandyard.broker.wiring.part;"
        "heavy = ('opentelemetry.sdk', 'opentelemetry.exporter',"
        " 'sandyard.kit.observability.tracing_otel');"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(), capture_output=True, timeout=100
    )
    assert done.stdout.decode().strip() == "[]", done.stderr.decode()
