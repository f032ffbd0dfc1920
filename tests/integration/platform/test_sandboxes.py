"""Sandboxes that really run: started, served, measured, stopped, kept, timed out and paid for."""

import asyncio
import os
import shutil
import signal
import time
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from sandyard.kit.clock import utc_time
from sandyard.platform.access.principal import Role
from sandyard.platform.schema.tables import sandbox_usage, sandboxes
from sandyard.runtime.local.records.run_folder import LocalRunFolder
from sandyard.runtime.model import IsolationMode, Limits, Program, Repository, RunId, Running
from sandyard.runtime.records.run_folder import remove_folder
from tests.support.platform.in_process import PASSWORD, PlatformApi, code_of
from tests.support.platform.sandboxes import act, add_sandbox, add_template, look, page_of
from tests.support.runtime.git_server import GitServer


async def open_usages(api: PlatformApi) -> int:
    statement = sa.select(sa.func.count()).where(sandbox_usage.c.end_time.is_(None))
    return int(await api.part.database.read(lambda c: c.execute(statement).scalar_one()))


async def test_it_starts_serves_stops_and_finds_its_files_again(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    assert sandbox["status"] == "created"
    assert Decimal(sandbox["cost"]) == 0
    running = await act(api, caller, sandbox, "start")
    assert running["status"] == "running"
    assert (await page_of(api, caller, running)).status_code == 200
    assert await open_usages(api) == 1
    stopped = await act(api, caller, sandbox, "stop")
    assert (stopped["status"], stopped["preview_url"]) == ("stopped", None)
    assert stopped["status_reason"] == "stopped by its owner"
    assert stopped["snapshot_bytes"] > 0
    assert await open_usages(api) == 0
    page = await page_of(api, caller, running)
    assert code_of(page) == (502, "SANDBOX_NOT_RUNNING")
    again = await act(api, caller, sandbox, "start")
    assert (await page_of(api, caller, again)).status_code == 200
    assert (await act(api, caller, sandbox, "stop"))["status"] == "stopped"
    assert await act(api, caller, sandbox, "stop") == await look(api, caller, sandbox)


async def test_two_starts_at_once_start_one(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    answers = await asyncio.gather(*(act(api, caller, sandbox, "start") for _ in range(5)))
    assert len({answer["preview_url"] for answer in answers}) == 1
    held = await api.part.wired.runtime.list_runs("sandbox")
    assert len(held) == 1
    assert await open_usages(api) == 1


async def test_a_start_is_dated_after_the_check_of_the_runtime(
    api: PlatformApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    runtime = api.part.wired.runtime
    check = runtime.check

    async def check_slowly(isolation: IsolationMode | None = None) -> None:
        await check(isolation)
        api.clock.advance(60)

    monkeypatch.setattr(runtime, "check", check_slowly)
    asked_at = api.clock.now()
    await act(api, caller, sandbox, "start")
    history = await api.get(f"/sandboxes/{sandbox['sandbox_id']}/history", caller)
    [starting] = [each for each in history["events"] if each["kind"] == "sandbox.starting"]
    assert datetime.fromisoformat(starting["at"]) >= utc_time(asked_at + 59)


async def test_a_stop_during_the_start_ends_in_stopped(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    starting = asyncio.create_task(api.call("POST", f"{path}/start", caller))
    while (await look(api, caller, sandbox))["status"] == "created":
        await asyncio.sleep(0.005)
    assert (await act(api, caller, sandbox, "stop"))["status"] == "stopped"
    assert (await starting).status_code in (200, 409)
    assert (await look(api, caller, sandbox))["status"] == "stopped"
    assert await open_usages(api) == 0


async def test_it_times_out_and_its_owner_is_told(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, max_running_seconds=1)
    await act(api, caller, sandbox, "start")
    async with asyncio.timeout(60):
        while (await collect_ends(api)).closed == 0:
            await asyncio.sleep(0.1)
    ended = await look(api, caller, sandbox)
    assert (ended["status"], ended["status_reason"]) == ("timeout", "it reached its deadline")
    assert ended["snapshot_bytes"] > 0
    [usage] = (await api.get("/usage", caller))["usage"]
    assert 1 <= usage["seconds"] <= 30, "its limit, not the hour that it might have run"
    assert Decimal(usage["cost"]) == Decimal(ended["cost"])
    assert await open_usages(api) == 0


@pytest.mark.parametrize(
    ("files", "status", "reason"),
    [
        ({"README": b"nothing to run"}, "failed", "Procfile"),
        ({"Procfile": b"worker: true\n"}, "failed", "`web:`"),
        ({"Procfile": b"web: echo bye; exit 3\n"}, "failed", "code 3"),
        ({"Procfile": b"web: true\n"}, "stopped", ""),
    ],
)
async def test_a_program_that_does_not_serve_leaves_its_sandbox_running(
    api: PlatformApi, git: GitServer, files: dict[str, bytes], status: str, reason: str
) -> None:
    caller = await api.account()
    url = git.add(uuid4().hex, files)
    sandbox = await add_sandbox(api, caller, template_id=await add_template(api, url))
    started = await act(api, caller, sandbox, "start")
    assert (started["status"], started["program"]["status"]) == ("running", status)
    assert reason in started["program"]["reason"]
    assert await open_usages(api) == 1, "the machine's time is billed"
    await act(api, caller, sandbox, "stop")


async def test_a_broken_program_is_repaired_inside_and_killed_without_ending_its_sandbox(
    api: PlatformApi, git: GitServer
) -> None:
    caller = await api.account()
    url = git.add(uuid4().hex, {"Procfile": b"web: echo no app >&2; sh app.sh\n"})
    template_id = await add_template(api, url)
    sandbox = await add_sandbox(api, caller, template_id=template_id, program_policy="never")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    failed = (await act(api, caller, sandbox, "start"))["program"]
    assert (failed["status"], failed["restarts_at"]) == ("failed", None)
    assert failed["last_lines"][0] == "no app"

    serve = "echo 'exec python3 -m http.server $PORT' >app.sh"
    wish = {"command": ["sh", "-c", serve]}
    assert (await api.post(f"{path}/commands", caller, wish))["exit_code"] == 0
    served = await api.post(f"{path}/program/restart", caller)
    assert served["program"]["status"] == "running"
    assert served["started_at"] == (await look(api, caller, sandbox))["started_at"]

    wish = {"command": ["sh", "-c", "pkill -KILL -f http.server"]}
    await api.post(f"{path}/commands", caller, wish)
    async with asyncio.timeout(60):
        while (await look(api, caller, sandbox))["program"]["status"] != "failed":
            assert (await collect_ends(api)).closed == 0
            await asyncio.sleep(0.05)
    assert (await look(api, caller, sandbox))["status"] == "running"
    assert (await api.post(f"{path}/program/start", caller))["program"]["status"] == "running"
    assert (await api.post(f"{path}/program/stop", caller))["program"]["status"] == "stopped"
    kinds = [
        each["kind"]
        for each in (await api.get(f"{path}/history", caller))["events"]
        if each["kind"].startswith("program.")
    ]
    assert kinds[::-1] == [
        f"program.{each}" for each in ("running", "failed", "running", "stopped")
    ]

    await act(api, caller, sandbox, "stop")
    rescued = await api.post(f"{path}/start", caller, {"program": False})
    assert (rescued["status"], rescued["program"]["status"]) == ("running", "stopped")
    await act(api, caller, sandbox, "stop")
    for action in ("start", "stop", "restart"):
        answer = await api.call("POST", f"{path}/program/{action}", caller)
        assert code_of(answer) == (409, "NOT_RUNNING")
    kinds = [each["service_type"] for each in (await api.get("/usage", caller))["usage"]]
    assert kinds.count("sandbox_runtime") == 2, "one for each run of its machine"


async def test_its_run_is_extended_and_never_shortened(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, max_running_seconds=600)
    path = f"/sandboxes/{sandbox['sandbox_id']}/extend"
    answer = await api.call("POST", path, caller, json={"seconds": 3600})
    assert code_of(answer) == (409, "NOT_RUNNING")
    started = await act(api, caller, sandbox, "start")
    later = await api.post(path, caller, {"seconds": 3600})
    moved = datetime.fromisoformat(later["timeout_at"]) - utc_time(api.clock.now())
    assert 3500 < moved.total_seconds() <= 3600
    assert later["timeout_at"] > started["timeout_at"]
    assert (await api.post(path, caller, {"seconds": 60}))["timeout_at"] == later["timeout_at"]
    await act(api, caller, sandbox, "stop")


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://127.0.0.1:9/nothing.git", "CLONE_FAILED"),
        ("https://169.254.169.254/latest", "REPOSITORY_ADDRESS_REFUSED"),
        ("https://10.0.0.1/private.git", "REPOSITORY_ADDRESS_REFUSED"),
        ("ext::sh -c id", "INVALID_REPOSITORY_URL"),
        ("file:///etc", "INVALID_REPOSITORY_URL"),
        ("builtin:no-such", "INVALID_REPOSITORY_URL"),
    ],
)
async def test_a_broken_repository_url_ends_in_a_clear_state(
    api: PlatformApi, url: str, code: str
) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, template_id=await add_template(api, url))
    answer = await api.call("POST", f"/sandboxes/{sandbox['sandbox_id']}/start", caller)
    assert answer.json()["error"]["code"] == code
    ended = await look(api, caller, sandbox)
    assert ended["status"] == "stopped"
    assert ended["status_reason"].startswith(code)


async def test_those_of_a_deactivated_account_are_ended(api: PlatformApi) -> None:
    admin = await api.account(role=Role.ADMIN)
    bob, ann = await api.account(), await api.account()
    sandboxes = [await add_sandbox(api, each) for each in (bob, ann)]
    for caller, sandbox in zip((bob, ann), sandboxes, strict=True):
        await act(api, caller, sandbox, "start")
    await api.post(f"/admin/users/{bob.account_id}/deactivate", admin)
    assert (await collect_ends(api)).closed == 1
    assert await open_usages(api) == 1
    assert (await look(api, ann, sandboxes[1]))["status"] == "running"
    await act(api, ann, sandboxes[1], "stop")
    await api.post(f"/admin/users/{bob.account_id}/activate", admin)
    login = {"login": bob.username, "password": PASSWORD}
    bob.headers["Authorization"] = (
        f"Bearer {(await api.post('/auth/login', None, login))['access_token']}"
    )
    ended = await look(api, bob, sandboxes[0])
    assert (ended["status"], ended["preview_url"]) == ("stopped", None)
    assert ended["status_reason"] == "its account was deactivated"


async def test_its_logs_are_shown_and_followed(api: PlatformApi, git: GitServer) -> None:
    caller = await api.account()
    program = b"web: echo hello; (sleep 1; echo later) & exec python3 -m http.server $PORT\n"
    template_id = await add_template(api, git.add(uuid4().hex, {"Procfile": program}))
    sandbox = await add_sandbox(api, caller, template_id=template_id)
    path = f"/sandboxes/{sandbox['sandbox_id']}/logs"
    assert code_of(await api.call("GET", path, caller)) == (409, "NEVER_STARTED")
    await act(api, caller, sandbox, "start")
    assert "hello" in (await api.get(path, caller))["lines"]
    following = asyncio.create_task(api.call("GET", f"{path}?follow=true", caller))
    async with asyncio.timeout(60):
        while "later" not in (await api.get(path, caller))["lines"]:
            await asyncio.sleep(0.1)
    await act(api, caller, sandbox, "stop")
    followed = (await following).text.splitlines()
    assert {"hello", "later"} <= set(followed)
    assert "later" in (await api.get(path, caller))["lines"]


async def test_it_is_measured_from_its_real_processes(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    await act(api, caller, sandbox, "start")
    for _ in range(2):
        assert (await run_job(api, "measure")).measured == 1
        await asyncio.sleep(0.2)
    [bucket] = (await api.get(f"/sandboxes/{sandbox['sandbox_id']}/metrics", caller, bucket="1h"))[
        "metrics"
    ]
    assert bucket["count"] == 2
    assert 0 < bucket["memory_utilization"] < 100
    assert 0 <= bucket["cpu_utilization"] < 250
    assert 0 < bucket["storage_utilization"] < 100


async def test_one_account_can_not_take_the_machine(api: PlatformApi) -> None:
    caller, other = await api.account(), await api.account()
    boxes = [await add_sandbox(api, caller) for _ in range(4)]
    outcomes = await asyncio.gather(
        *(api.call("POST", f"/sandboxes/{box['sandbox_id']}/start", caller) for box in boxes)
    )
    assert sorted(answer.status_code for answer in outcomes) == [200, 200, 200, 409]
    [refused] = [answer for answer in outcomes if answer.status_code == 409]
    error = refused.json()["error"]
    assert error["code"] == "QUOTA_EXCEEDED"
    assert error["details"]["sandboxes"] == {"limit": 3, "in_use": 3, "asked": 1}
    assert (await act(api, other, await add_sandbox(api, other), "start"))["status"] == "running"
    for box, answer in zip(boxes, outcomes, strict=True):
        if answer.status_code == 200:
            await act(api, caller, box, "stop")
    large = await add_sandbox(api, caller, cpu_spec=5)
    answer = await api.call("POST", f"/sandboxes/{large['sandbox_id']}/start", caller)
    assert answer.json()["error"]["details"]["cpu"] == {"limit": 4, "in_use": 0, "asked": 5}


async def test_what_no_sandbox_has_is_ended(api: PlatformApi) -> None:
    runtime = api.part.wired.runtime
    caller = await api.account()
    mine = await add_sandbox(api, caller)
    await act(api, caller, mine, "start")
    limits = Limits(1, 2**29, 64, 2**28, 600)
    stray = RunId("sandbox", "sbx-nobody", "1")
    preview = RunId("preview", "prj-1", "1")
    for run_id in (stray, preview):
        await runtime.start(run_id, Program(Repository("builtin:static")), limits)
    report = await run_job(api, "reconcile")
    assert report.orphans_ended == 1
    assert await runtime.refresh(stray) is None
    assert isinstance(await runtime.refresh(preview), Running), "another kind is not touched"
    assert (await look(api, caller, mine))["status"] == "running"
    await runtime.stop(preview)


async def test_one_whose_state_is_lost_is_closed(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    await act(api, caller, sandbox, "start")
    run_id = RunId("sandbox", sandbox["sandbox_id"], "1")
    await api.part.wired.runtime.stop(run_id)
    await api.part.wired.runtime.forget(run_id)
    age = sandboxes.update().values(updated_at=utc_time(time.time() - 60))
    await api.part.database.write(lambda connection: connection.execute(age))
    assert (await collect_ends(api)).lost == 1
    assert (await look(api, caller, sandbox))["status"] == "stopped"
    assert await open_usages(api) == 0


async def test_one_broken_record_does_not_stop_the_bookkeeping_of_the_others(
    api: PlatformApi,
) -> None:
    caller = await api.account()
    broken, removed, ended = [await add_sandbox(api, caller) for _ in range(3)]
    for each in (broken, removed, ended):
        await act(api, caller, each, "start")
    held = api.data_dir / "runtime/held/sandbox"
    record = held / broken["sandbox_id"] / "1/running.json"
    content = record.read_text()
    record.write_text("{")
    (held / "not a run").mkdir()
    (held / "not a folder").touch()
    await api.part.wired.runtime.stop(RunId("sandbox", ended["sandbox_id"], "1"))
    folder = held / removed["sandbox_id"]
    supervisor = LocalRunFolder(folder / "1").supervisor_pid()
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    remove_folder(folder)
    assert (await run_job(api, "measure")).measured == 0
    assert (await run_job(api, "reconcile")).closed == 1
    assert (await look(api, caller, ended))["status"] == "stopped"
    listed = await api.part.wired.runtime.list_runs("sandbox")
    assert [run.run_id.id for run in listed] == [ended["sandbox_id"]]
    orphan = api.data_dir / "runtime/snapshots/old.snapshot"
    shutil.copy(next(orphan.parent.iterdir()), orphan)
    api.clock.advance(2 * 3600)
    assert (await run_job(api, "snapshots")).unreferenced_removed == 0, "it may be that run's"
    assert (await act(api, caller, ended, "start"))["status"] == "running"
    assert (await look(api, caller, broken))["status"] == "running", "nothing is known of its end"
    record.write_text(content)
    assert (await run_job(api, "snapshots")).unreferenced_removed == 1
    assert (await run_job(api, "measure")).measured == 2


async def test_recycling_ends_it_for_good(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller, name="mine")
    await act(api, caller, sandbox, "start")
    gone = await api.call("DELETE", f"/sandboxes/{sandbox['sandbox_id']}", caller)
    assert gone.json()["status"] == "recycled"
    assert await open_usages(api) == 0
    assert await api.part.wired.runtime.list_runs("sandbox") == []
    assert await api.part.wired.runtime.list_snapshots() == []
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    for method, call, body in (
        ("POST", f"{path}/start", None),
        ("PATCH", path, {"name": "other"}),
    ):
        answer = await api.call(method, call, caller, json=body)
        assert code_of(answer) == (409, "SANDBOX_RECYCLED")
    assert (await add_sandbox(api, caller, name="mine"))["status"] == "created"


async def test_bills_are_made_once(api: PlatformApi) -> None:
    caller, admin = await api.account(), await api.admin()
    sandbox = await add_sandbox(api, caller)
    await act(api, caller, sandbox, "start")
    await asyncio.sleep(1.1)
    await act(api, caller, sandbox, "stop")
    first = await api.post("/admin/billing/run", admin)
    again = await api.post("/admin/billing/run", admin)
    assert (first["bills"], again["bills"]) == (1, 0)
    [bill] = (await api.get("/billing", caller))["bills"]
    [usage] = (await api.get("/usage", caller, service_type="sandbox_runtime"))["usage"]
    assert Decimal(bill["amount"]) == Decimal(usage["cost"]) > 0
    assert bill["usage_seconds"] == usage["seconds"] >= 1
    summary = await api.get("/billing/summary", caller, by="project")
    assert Decimal(summary["total"]) == Decimal(bill["amount"])
    text = (await api.call("GET", "/billing/export", caller)).text
    assert f",{bill['amount']}," in text.splitlines()[1]
    assert text.splitlines()[1].endswith(",USD")
    month = await api.get("/billing/month-to-date", caller)
    shown = await api.get(f"/sandboxes/{sandbox['sandbox_id']}", caller)
    assert {each["currency"] for each in (bill, usage, summary, month, shown)} == {"USD"}
    refused = await api.call("POST", "/admin/billing/run", caller)
    assert code_of(refused) == (403, "ADMINS_ONLY")


async def test_a_snapshot_expires_after_a_warning(api: PlatformApi) -> None:
    caller = await api.account()
    sandbox = await add_sandbox(api, caller)
    await act(api, caller, sandbox, "start")
    await act(api, caller, sandbox, "stop")

    async def expire_in(seconds: float) -> None:
        moved = sandboxes.update().values(snapshot_expires_at=utc_time(time.time() + seconds))
        await api.part.database.write(lambda connection: connection.execute(moved))

    await expire_in(3600)
    assert (await run_job(api, "snapshots")).warned == 1
    assert (await run_job(api, "snapshots")).warned == 0
    await expire_in(-1)
    assert (await run_job(api, "snapshots")).expired == 1
    assert (await look(api, caller, sandbox))["snapshot_bytes"] is None
    assert await api.part.wired.runtime.list_snapshots() == []
    assert (await act(api, caller, sandbox, "start"))["status"] == "running"


async def collect_ends(api: PlatformApi) -> Any:
    return await run_job(api, "ends")


async def run_job(api: PlatformApi, name: str) -> Any:
    [job] = [job for job in api.part.schedule if job.name.split()[0] == name]
    return await api.part.runner.run(job)
