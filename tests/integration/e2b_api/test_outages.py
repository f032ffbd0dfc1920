"""An outage is reported as one: never as an empty list, a missing sandbox or a missing template."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.kit.errors import UnavailableError
from tests.integration.e2b_api.conftest import E2b
from tests.support.platform.in_process import platform_settings


class Away:
    """A store whose engine does not respond to these calls."""

    def __init__(self, store: Any, *calls: str) -> None:
        self._store = store
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        async def fail(*_arguments: object, **_options: object) -> None:
            raise UnavailableError

        return fail if name in self._calls else getattr(self._store, name)


def break_templates(e2b: E2b, monkeypatch: pytest.MonkeyPatch, *calls: str) -> None:
    templates: Any = e2b.platform.part.templates
    monkeypatch.setattr(templates, "_store", Away(templates._store, *calls))


async def test_a_list_by_template_without_its_engine_is_not_empty(
    e2b: E2b, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await e2b.call("GET", "/v2/sandboxes?template=no-such")).json() == []
    break_templates(e2b, monkeypatch, "page")
    listed = await e2b.call("GET", "/v2/sandboxes?template=base")
    assert (listed.status_code, listed.json()["code"]) == (503, 503)


async def test_a_snapshot_is_not_stored_without_its_template(
    e2b: E2b, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/sandboxes/{(await e2b.create())['sandboxID']}/snapshots"
    break_templates(e2b, monkeypatch, "find")
    assert (await e2b.call("POST", path, {})).status_code == 503
    monkeypatch.undo()
    assert (await e2b.call("GET", "/snapshots")).json() == []


async def test_metrics_of_a_machine_that_does_not_respond(
    e2b: E2b, outage: UnavailableError
) -> None:
    sandbox_id = (await e2b.create())["sandboxID"]
    e2b.runtime.error = outage
    assert (await e2b.call("GET", f"/sandboxes/{sandbox_id}/metrics")).status_code == 503
    several = await e2b.call("GET", f"/sandboxes/metrics?sandbox_ids={sandbox_id}")
    assert several.status_code == 503


async def test_an_outage_or_a_quota_at_wake_is_not_a_missing_sandbox(
    e2b: E2b, outage: UnavailableError
) -> None:
    sandbox = await e2b.create(autoPause=True, autoResume={"enabled": True})
    path = f"/sandboxes/{sandbox['sandboxID']}/pause"
    assert (await e2b.call("POST", path)).status_code == 204
    e2b.runtime.error = outage
    away = await e2b.inside(sandbox, "/process.Process/List", {})
    assert (away.status_code, away.json()["code"]) == (503, "unavailable")
    e2b.runtime.error = None
    assert (await e2b.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}")).status_code == 204
    gone = await e2b.inside(sandbox, "/process.Process/List", {})
    assert (gone.status_code, gone.json()["message"]) == (502, "The sandbox was not found")


async def test_a_create_whose_caller_has_gone_leaves_nothing_behind(e2b: E2b) -> None:
    e2b.runtime.may_start.clear()
    creating = asyncio.create_task(e2b.create())
    while not (await e2b.call("GET", "/v2/sandboxes")).json():
        await asyncio.sleep(0.01)
    creating.cancel()
    e2b.runtime.may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert (await e2b.call("GET", "/v2/sandboxes")).json() == []


async def test_a_create_that_is_cancelled_at_any_moment_leaves_nothing_half_made(e2b: E2b) -> None:
    """One whose caller leaves once it runs, runs until its time is over."""
    for moment in range(60):
        creating = asyncio.create_task(e2b.create())
        await asyncio.sleep(moment / 2000)
        creating.cancel()
        await asyncio.wait({creating})
    found = (await e2b.platform.get("/sandboxes", e2b.account))["sandboxes"]
    assert {each["status"] for each in found} <= {"recycled", "running"}


async def starting(e2b: E2b) -> None:
    """Return when a sandbox is being started."""
    async with asyncio.timeout(20):
        while not (await e2b.call("GET", "/v2/sandboxes")).json():
            await asyncio.sleep(0.01)


async def test_a_create_whose_caller_disconnects_is_ended(e2b: E2b) -> None:
    e2b.runtime.may_start.clear()
    has_left = asyncio.Event()
    body = b'{"templateID": "base"}'
    sent: list[bytes] = []

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(body)
            return {"type": "http.request", "body": body}
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Nobody receives it; it must not say that all went well."""
        assert message.get("status", 400) >= 400

    given = {**e2b.account.headers, "host": "test", "content-length": str(len(body))}
    path = "/e2b/v2/sandboxes"
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "http_version": "1.1",
        "scheme": "http",
        "state": {},
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "server": ("test", 80),
        "client": ("127.0.0.1", 1),
    }
    creating = asyncio.create_task(e2b.platform.app(scope, receive, send))
    await starting(e2b)
    has_left.set()
    e2b.runtime.may_start.set()
    await creating
    assert (await e2b.call("GET", "/v2/sandboxes")).json() == []


async def test_a_repeated_create_waits_like_the_first_and_outlives_it(e2b: E2b) -> None:
    e2b.runtime.may_start.clear()
    first, repeated = (asyncio.create_task(create_with_key(e2b)) for _ in range(2))
    await starting(e2b)
    done, _ = await asyncio.wait({first, repeated}, timeout=0.2)
    assert not done
    first.cancel()
    e2b.runtime.may_start.set()
    made = await repeated
    assert (await e2b.inside(made, "/process.Process/List", {})).status_code == 200
    assert (await create_with_key(e2b))["sandboxID"] == made["sandboxID"]


async def test_a_repeated_create_at_another_replica_waits_too(e2b: E2b) -> None:
    e2b.runtime.may_start.clear()
    first = asyncio.create_task(create_with_key(e2b))
    await starting(e2b)
    async with another_app(e2b) as replica:
        repeated = asyncio.create_task(create_with_key(replica))
        done, _ = await asyncio.wait({repeated}, timeout=0.2)
        assert not done
        e2b.runtime.may_start.set()
        made = await repeated
    assert made["sandboxID"] == (await first)["sandboxID"]
    assert (await e2b.inside(made, "/process.Process/List", {})).status_code == 200


async def test_a_repeated_create_makes_nothing_once_its_sandbox_is_gone(e2b: E2b) -> None:
    first = await create_with_key(e2b)
    sandbox = f"/sandboxes/{first['sandboxID']}"
    assert (await e2b.call("DELETE", sandbox)).status_code == 204
    assert await create_with_key(e2b) == first
    assert (await e2b.call("GET", sandbox)).status_code == 404


async def create_with_key(e2b: E2b, **fields: Any) -> dict[str, Any]:
    made = await e2b.call(
        "POST", "/v2/sandboxes", {"templateID": "base", **fields}, idempotency_key="the-same"
    )
    assert made.status_code == 201, made.text
    body: dict[str, Any] = made.json()
    return body


@asynccontextmanager
async def another_app(e2b: E2b) -> AsyncIterator[E2b]:
    """The same Platform, served by another application."""
    app = create_app(
        platform_settings(None),
        [e2b.platform.part],
        registry=CollectorRegistry(),
        in_flight=InFlight(),
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield replace(e2b, platform=replace(e2b.platform, app=app, client=client))
