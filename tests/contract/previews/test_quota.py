"""So many previews of an account run and no more, whatever happens to projects and makers."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandyard.kit.clock import utc_time
from sandyard.previews.jobs import EndReport
from tests.fakes.runtime import FakeRuntime
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, minutes, preview_api
from tests.support.previews.providers import local_provider
from tests.support.runtime.programs import LIMITS

LIMIT = 3
"""As `preview_api` sets it."""


async def end_previews(api: PreviewApi) -> Any:
    [job] = [job for job in api.previews.schedule if job.name == "end-previews"]
    assert job.interval_sec <= 60 / 2, "twice a minute, whenever the minute begins"
    return await api.previews.runner.run(job)


def again(api: PreviewApi, caller: Caller) -> Caller:
    """With a new login, because a deactivation ends those before."""
    now = utc_time(api.clock.now())
    login = api.part.logins.issue(account_id=caller.account_id, token_version=1, now=now)
    return replace(caller, headers={"Authorization": f"Bearer {login.access_token}"})


async def delete(api: PreviewApi, caller: Caller, project: str) -> None:
    assert (await api.call("DELETE", f"/projects/{project}", caller)).status_code == 204


async def test_an_account_has_so_many_previews(api: PreviewApi, double: E2bDouble) -> None:
    caller, other = await api.account(), await api.account()
    projects = [await api.project(caller, **{"index.html": str(n)}) for n in range(4)]
    outcomes = await asyncio.gather(
        *(api.call("POST", f"/projects/{each}/sync", caller) for each in projects)
    )
    assert sorted(answer.status_code for answer in outcomes) == [200, 200, 200, 409]
    [refused] = [answer for answer in outcomes if answer.status_code == 409]
    assert refused.json()["error"]["code"] == "PREVIEWS_LIMIT_EXCEEDED"
    shown = {"resource": "previews", "in_use": 3, "limit": 3}
    quotas = (await api.get("/me/quota", caller))["quotas"]
    assert shown in quotas
    assert {"file_bytes": 4}.items() <= {
        each["resource"]: each["in_use"] for each in quotas
    }.items()
    assert shown | {"in_use": 0} in (await api.get("/me/quota", other))["quotas"]
    await api.sync(other, await api.project(other, **{"index.html": "mine"}))
    assert len(double.boxes) == 4


async def test_the_preview_of_a_deleted_project_ends(api: PreviewApi, double: E2bDouble) -> None:
    caller = await api.account()
    deleted, kept = [await api.project(caller, **{"index.html": str(n)}) for n in range(2)]
    for project in (deleted, kept):
        await api.sync(caller, project)
    await delete(api, caller, deleted)
    assert await end_previews(api) == EndReport(ended=1, removed=1)
    assert {box.metadata["project_id"] for box in double.boxes} == {kept}
    assert await end_previews(api) == EndReport()


async def test_create_sync_delete_again_and_again_keeps_within_the_quota(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    for number in range(LIMIT + 3):
        project = await api.project(caller, **{"index.html": str(number)})
        await api.sync(caller, project)
        await delete(api, caller, project)
        assert len(double.boxes) <= LIMIT


async def test_a_deleted_project_s_preview_that_can_not_be_ended_counts(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    for number in range(LIMIT):
        project = await api.project(caller, **{"index.html": str(number)})
        await api.sync(caller, project)
        await delete(api, caller, project)
    double.inject("unauthorized", "delete")
    next_one = await api.project(caller, **{"index.html": "next"})
    refused = await api.call("POST", f"/projects/{next_one}/sync", caller)
    assert code_of(refused) == (409, "PREVIEWS_LIMIT_EXCEEDED")
    assert len(double.boxes) == LIMIT
    double.calm()
    await api.sync(caller, next_one)
    assert len(double.boxes) == 1


async def test_a_sandbox_whose_maker_died_counts_before_and_after_it_is_adopted(
    api: PreviewApi, double: E2bDouble
) -> None:
    caller = await api.account()
    first, *others = [await api.project(caller, **{"index.html": str(n)}) for n in range(LIMIT + 1)]
    double.inject("drop_after", "create", times=1)
    assert (await api.call("POST", f"/projects/{first}/sync", caller)).status_code == 503
    api.clock.advance(minutes(4))  # the attempt's time is over
    outcomes = [await api.call("POST", f"/projects/{each}/sync", caller) for each in others]
    assert [answer.status_code for answer in outcomes] == [200] * (LIMIT - 1) + [409]
    assert await end_previews(api) == EndReport(settled=1)
    refused = await api.call("POST", f"/projects/{others[-1]}/sync", caller)
    assert code_of(refused) == (409, "PREVIEWS_LIMIT_EXCEEDED")
    synced = await api.sync(caller, first)
    assert synced["data"]["sandbox_info"]["sandbox_id"] == double.boxes[0].sandbox_id
    assert len(double.boxes) == LIMIT


async def test_an_attempt_that_made_nothing_is_settled_and_gives_its_room_back(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    async with preview_api(database_url, tmp_path, double) as api:
        caller = await api.account()
        lost, *others = [await api.project(caller, index=str(n)) for n in range(LIMIT + 1)]
        double.inject("drop", "create", times=1)
        assert (await api.call("POST", f"/projects/{lost}/sync", caller)).status_code == 503
        assert await end_previews(api) == EndReport(), "something of it may still turn up"
        api.clock.advance(31)
        assert await end_previews(api) == EndReport(settled=1)
        for project in others:
            await api.sync(caller, project)
        history = await api.get(f"/projects/{lost}/sandbox/history", caller)
        newest = history["events"][0]
        assert (newest["kind"], newest["actor"]) == ("preview.abandoned", "job:end-previews")


async def test_an_account_that_is_deactivated_loses_its_previews(
    api: PreviewApi, double: E2bDouble
) -> None:
    admin, caller, other = await api.admin(), await api.account(), await api.account()
    mine, another = [await api.project(caller, **{"index.html": str(n)}) for n in range(2)]
    theirs = await api.project(other, **{"index.html": "theirs"})
    await api.sync(caller, mine)
    double.inject("drop_after", "create", times=1)
    assert (await api.call("POST", f"/projects/{another}/sync", caller)).status_code == 503
    await api.sync(other, theirs)
    await api.post(f"/admin/users/{caller.account_id}/deactivate", admin)
    assert await end_previews(api) == EndReport(ended=1)
    api.clock.advance(31)
    await end_previews(api)
    assert {box.metadata["project_id"] for box in double.boxes} == {theirs}
    assert await end_previews(api) == EndReport()
    await api.post(f"/admin/users/{caller.account_id}/activate", admin)
    caller = again(api, caller)
    [newest, *_] = (await api.get(f"/projects/{mine}/sandbox/history", caller))["events"]
    assert (newest["kind"], newest["reason"]) == ("preview.ended", "the account is deactivated")
    assert (await api.status(caller, mine))["status"] == "expired"
    assert (await api.get(f"/projects/{mine}/files", caller))["version"] == 1, "files stay"
    await api.sync(caller, mine)


async def test_a_running_preview_counts_against_the_quota_of_stored_files(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> None:
    """Of the twenty GB of an account, each may store eight."""
    limits = replace(LIMITS, storage_bytes=8 * 2**30)
    provider = local_provider(FakeRuntime(tmp_path / "runtime"), limits=limits)
    async with preview_api(database_url, tmp_path, double, provider=provider) as api:
        caller = await api.account()
        projects = [await api.project(caller, **{"index.html": str(n)}) for n in range(3)]
        for project in projects[:2]:
            await api.sync(caller, project)
        refused = await api.call("POST", f"/projects/{projects[2]}/sync", caller)
        assert code_of(refused) == (409, "QUOTA_EXCEEDED")
        assert "16 of 20 storage_gb in use, 8 needed" in refused.text
        quotas = (await api.get("/me/quota", caller))["quotas"]
        assert {"resource": "storage_gb", "in_use": 16, "limit": 20} in quotas
