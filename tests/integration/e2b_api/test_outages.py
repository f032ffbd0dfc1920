"""An outage is reported as one: never as an empty list, a missing sandbox or a missing template."""

import asyncio
from typing import Any

import pytest

from sandyard.kit.errors import UnavailableError
from tests.integration.e2b_api.conftest import E2b


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
    break_templates(e2b, monkeypatch, "page_of_templates")
    listed = await e2b.call("GET", "/v2/sandboxes?template=base")
    assert (listed.status_code, listed.json()["code"]) == (503, 503)


async def test_a_snapshot_is_not_stored_without_its_template(
    e2b: E2b, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/sandboxes/{(await e2b.create())['sandboxID']}/snapshots"
    break_templates(e2b, monkeypatch, "find_template")
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
