"""Sandboxes of a node that says nothing any more, as another one sees and ends them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.kit.observability.metrics import Labelled
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.quotas.model import Resources
from sandyard.platform.schema.tables import billing_records, sandbox_usage
from tests.contract.platform.lives import DAY, Life, bill, life, price, rows_of
from tests.contract.platform.sandboxes.test_actors import events_of
from tests.support.clocks import ManualClock
from tests.support.platform.in_process import (
    Caller,
    MigratedEngines,
    PlatformApi,
    code_of,
    platform_api,
)
from tests.support.platform.sandboxes import add_template
from tests.support.storage.engines import SQL_ENGINES

HOUR = 3600
SILENT_SEC = 10


@pytest.fixture(params=SQL_ENGINES)
async def nodes(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Sequence[PlatformApi]]:
    """Two nodes on one engine; SQLite serves one process, so there they are the same."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    url = await migrated.copy(request.param, folders[0])
    async with platform_api(url, folders[0], clock) as one:
        if url is None:
            yield one, one
            return
        async with platform_api(url, folders[1], clock) as other:
            yield one, other


@pytest.fixture
async def ann(nodes: Sequence[PlatformApi]) -> Caller:
    return await nodes[0].account()


@pytest.fixture
async def box(nodes: Sequence[PlatformApi], ann: Caller) -> Life:
    """Runs for an hour at most, on a node that neither of the two is."""
    box = await life(nodes[0], ann.account_id, await add_template(nodes[0]))
    box.may_run_for = timedelta(hours=1)
    await box.start(now_of(nodes[0]))
    return box


def now_of(api: PlatformApi) -> datetime:
    return utc_time(api.clock.now())


async def collect_ends(api: PlatformApi) -> Any:
    [job] = [job for job in api.part.schedule if job.name.startswith("ends ")]
    return await api.part.runner.run(job)


async def login(api: PlatformApi, ann: Caller) -> Caller:
    """A login of now: they end, and the tests let days pass."""
    issued = api.part.logins.issue(account_id=ann.account_id, token_version=0, now=now_of(api))
    headers = {"Authorization": f"Bearer {issued.access_token}"}
    return Caller(ann.account_id, ann.email, ann.username, headers)


async def test_its_cost_stops_at_its_deadline_whether_its_end_is_known_or_not(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    api = nodes[0]
    assert box.running is not None
    whole = price(HOUR, box.running[1])
    api.clock.advance(3 * DAY)
    ann = await login(api, ann)
    shown = await api.get(f"/sandboxes/{box.sandbox_id}", ann)
    [usage] = (await api.get("/usage", ann))["usage"]
    assert (shown["status"], shown["cost"], usage["seconds"]) == ("running", str(whole), HOUR)
    await bill(api, api.clock)
    [billed] = await rows_of(api, billing_records, [box.sandbox_id])
    assert (billed.amount, billed.usage_seconds) == (whole, HOUR)
    assert (await collect_ends(api)).overdue == 1
    await bill(api, api.clock)
    [closed] = await rows_of(api, sandbox_usage, [box.sandbox_id])
    amounts = [each.amount for each in await rows_of(api, billing_records, [box.sandbox_id])]
    assert sum(amounts) == closed.cost <= whole


async def test_silence_alone_ends_nothing_before_the_deadline(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    one, other = nodes
    one.clock.advance(600)
    await box.store.note_seen([box.sandbox_id], at=now_of(one))
    seen_at = now_of(one)
    one.clock.advance(HOUR - 601)
    assert (await collect_ends(one)).overdue == 0
    for action in ("start", "stop"):
        path = f"/sandboxes/{box.sandbox_id}/{action}"
        answer = await one.call("POST", path, await login(one, ann))
        assert code_of(answer) == (503, "SANDBOX_ELSEWHERE")
        assert answer.json()["error"]["details"] == {"node": "n"}
    one.clock.advance(1)
    reports = await asyncio.gather(
        *(collect_ends(each) for each in {id(n): n for n in nodes}.values())
    )
    assert sum(report.overdue for report in reports) == 1, "one of them ends it"
    shown = await other.get(f"/sandboxes/{box.sandbox_id}", await login(other, ann))
    assert (shown["status"], datetime.fromisoformat(shown["stopped_at"])) == ("stopped", seen_at)
    [usage] = await rows_of(one, sandbox_usage, [box.sandbox_id])
    assert (usage.end_time, usage.running_seconds) == (seen_at, 600)
    event = (await events_of(one, box.sandbox_id))["sandbox.stopped"]
    assert (event.actor, event.reason) == ("job:ends", shown["status_reason"])
    assert "node n has been silent since" in shown["status_reason"]
    assert (await verify_platform(one.part.database)).problems == []


async def test_its_quota_is_free_again(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    api = nodes[0]
    next_box = await life(api, ann.account_id, await add_template(api))
    api.clock.advance(HOUR + SILENT_SEC)
    assert (await collect_ends(api)).overdue == 1
    assert await next_box.begin(Resources(1, 1, 1, 1), now_of(api))


async def test_a_node_that_gives_signs_of_life_records_the_end_itself(
    nodes: Sequence[PlatformApi], box: Life
) -> None:
    api = nodes[0]
    api.clock.advance(HOUR + 60)
    await box.store.note_seen([box.sandbox_id], at=now_of(api))
    api.clock.advance(SILENT_SEC - 1)
    assert (await collect_ends(api)).overdue == 0, "it may be keeping the files"
    api.clock.advance(1)
    assert (await collect_ends(api)).overdue == 1
    sandbox = await box.look()
    assert (sandbox.status, sandbox.stopped_at) == ("timeout", sandbox.timeout_at)


async def test_a_node_gives_signs_of_life_of_any_number_of_sandboxes(
    nodes: Sequence[PlatformApi], box: Life
) -> None:
    api = nodes[0]
    others = [f"sbx-{number}" for number in range(40_000)]
    api.clock.advance(HOUR + 60)
    await box.store.note_seen([*others, box.sandbox_id], at=now_of(api))
    assert (await collect_ends(api)).overdue == 0


async def test_an_admin_ends_it_at_once(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    api, admin = nodes[1], await nodes[0].admin()
    path = f"/admin/sandboxes/{box.sandbox_id}/end"
    api.clock.advance(600)
    await box.store.note_seen([box.sandbox_id], at=now_of(api))
    api.clock.advance(60)
    for body in ({}, {"reason": ""}, {"reason": "a" * 256}, {"reason": "a\nb"}):
        assert (await api.call("POST", path, admin, json=body)).status_code == 400
    ended = await api.post(path, admin, {"reason": "its machine burned"})
    assert ended["status"] == "stopped"
    assert ended["status_reason"] == "ended by an admin: its machine burned"
    [usage] = await rows_of(api, sandbox_usage, [box.sandbox_id])
    assert usage.running_seconds == 600
    event = (await events_of(api, box.sandbox_id))["sandbox.stopped"]
    assert (event.actor, event.reason) == (f"account:{admin.account_id}", ended["status_reason"])
    [told] = (await api.get("/notifications", ann))["notifications"]
    assert "its machine burned" in told["message"]
    assert await api.post(path, admin, {"reason": "again"}) == ended
    assert (await box.look()).node is None
    unknown = await api.call("POST", "/admin/sandboxes/sbx-0/end", admin, json={"reason": "r"})
    assert code_of(unknown) == (404, "SANDBOX_UNKNOWN")


async def test_files_on_another_node_are_never_gone(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    api, admin = nodes[0], await nodes[0].admin()
    await box.end(now_of(api), 1000)
    before = await box.look()
    path = f"/sandboxes/{box.sandbox_id}"
    for method, call in (("POST", f"{path}/start"), ("GET", f"{path}/logs")):
        answer = await api.call(method, call, ann)
        assert code_of(answer) == (503, "SANDBOX_ELSEWHERE"), call
        assert answer.json()["error"]["details"] == {"node": "n"}
    assert await box.look() == before
    end = {"reason": "its machine burned"}
    early = await api.call("POST", f"/admin{path}/end", admin, json=end)
    assert code_of(early) == (503, "SANDBOX_ELSEWHERE")
    assert await box.look() == before, "its node may be well"
    api.clock.advance(HOUR)
    await api.post(f"/admin{path}/end", await login(api, admin), end)
    released = await box.look()
    assert (released.node, released.latest_snapshot_id) == (None, None)
    kept = [row for row in await rows_of(api, sandbox_usage, [box.sandbox_id]) if row.storage_gb]
    assert [row.end_time for row in kept] == [now_of(api)]
    assert (await verify_platform(api.part.database)).problems == []
    ann = await login(api, ann)
    gone = await api.call("DELETE", path, ann)
    assert gone.json()["status"] == "recycled"


async def test_where_no_other_node_can_report_its_runs_cost_no_more_than_was_seen(
    nodes: Sequence[PlatformApi], ann: Caller, box: Life
) -> None:
    """As after a restore: the node that ran it reports to the data dir of before."""
    api = nodes[0]
    api.clock.advance(60)
    await box.store.note_seen([box.sandbox_id], at=now_of(api))
    api.clock.advance(600)
    recorder = api.part.wired.recorder
    assert await recorder.cap_elsewhere("n") == 0
    [still] = (await api.get("/usage", ann))["usage"]
    assert still["seconds"] == 660
    assert await recorder.cap_elsewhere(api.part.wired.node) == 1
    assert await recorder.cap_elsewhere(api.part.wired.node) == 0
    [seen] = (await api.get("/usage", ann))["usage"]
    event = (await events_of(api, seen["usage_id"]))["usage.capped"]
    assert (event.actor, event.reason) == ("system", "its node n does not report here")
    api.clock.advance(600)
    assert (await api.get("/usage", ann))["usage"] == [seen]
    assert seen["seconds"] == 60
    assert (await verify_platform(api.part.database)).problems == []


async def test_it_is_counted_as_silent(
    nodes: Sequence[PlatformApi], box: Life, clock: ManualClock
) -> None:
    part = nodes[-1].part
    gauges = await part.own_gauges()
    assert gauges["sandyard_sandboxes_silent"][1] == 0
    clock.advance(SILENT_SEC + 1)
    gauges = await part.own_gauges()
    assert gauges["sandyard_sandboxes_silent"][1] == 1
    active = gauges["sandyard_sandboxes_active"][1]
    assert isinstance(active, Labelled)
    assert active.values == {("starting",): 0, ("running",): 1}
