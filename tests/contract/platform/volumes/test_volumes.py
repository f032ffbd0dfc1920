"""Volumes of accounts, on each engine: made, counted, billed, held by one writer, and deleted."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sandyard.platform.events.verification import verify_platform
from tests.contract.platform.images.test_images import logged_in
from tests.fakes.runtime import FakeRuntime
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

QUOTA: dict[str, Any] = {"quota_storage_gb": 10, "volumes_per_account": 4}


@pytest.fixture(params=SQL_ENGINES)
async def api(
    request: pytest.FixtureRequest, migrated: MigratedEngines, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[PlatformApi]:
    """With machines of nothing, so that what is decided is decided here."""
    url = await migrated.copy(request.param, tmp_path)
    async with platform_api(
        url, tmp_path, clock, runtime=FakeRuntime(tmp_path / "fake"), sandboxes=QUOTA
    ) as api:
        yield api


async def add(api: PlatformApi, caller: Caller, name: str = "models", **fields: Any) -> Any:
    return await api.post("/volumes", caller, {"name": name, "size_gb": 0.5, **fields})


async def box(api: PlatformApi, caller: Caller, name: str, *volumes: Any, **fields: Any) -> str:
    template_id = await add_template(api)
    body = {"name": name, "template_id": template_id, "volumes": volumes, **fields}
    made = await api.post("/sandboxes", caller, {"cpu_spec": 1, "memory_spec": 0.5, **body})
    assert made["volumes"] == [{"read_only": False, **each} for each in volumes]
    return f"/sandboxes/{made['sandbox_id']}"


def mount(name: str = "models", path: str = "/data", **fields: Any) -> dict[str, Any]:
    return {"name": name, "path": path, **fields}


async def run(api: PlatformApi, name: str) -> None:
    [job] = [each for each in api.part.schedule if each.name.startswith(name)]
    await api.part.runner.run(job)


def files_in(api: PlatformApi) -> Sequence[str]:
    return sorted(each.name for each in (api.data_dir / "runtime" / "volumes").iterdir())


async def test_made_listed_resized_and_deleted_with_their_files(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    volume = await add(api, ann)
    assert (volume["status"], volume["mounted_by"], volume["size_gb"]) == ("available", [], 0.5)
    path = f"/volumes/{volume['volume_id']}"
    assert files_in(api) == [volume["volume_id"]]
    assert await api.get(path, ann) == volume
    assert (await api.get("/volumes", ann, name="models"))["volumes"] == [volume]
    assert (await api.get("/volumes", bob))["volumes"] == []
    for method in ("GET", "DELETE", "PATCH"):
        body = {"json": {"size_gb": 1}} if method == "PATCH" else {}
        assert code_of(await api.call(method, path, bob, **body)) == (404, "VOLUME_NOT_FOUND")
    again = await api.call("POST", "/volumes", ann, json={"name": "models"})
    assert code_of(again) == (409, "VOLUME_NAME_TAKEN")
    resized = await api.call("PATCH", path, ann, json={"size_gb": 2})
    assert resized.json()["size_gb"] == 2
    copy = await add(api, ann, "then", copy_of=volume["volume_id"], read_only=True)
    assert (copy["size_gb"], copy["read_only"]) == (2, True)
    assert copy["copied_from"] == volume["volume_id"]
    assert (await api.call("DELETE", path, ann)).status_code == 204
    assert files_in(api) == [copy["volume_id"]]
    assert (await add(api, ann))["volume_id"] != volume["volume_id"], "the name is free"
    assert (await verify_platform(api.part.database)).problems == []


async def test_one_writer_or_many_readers(api: PlatformApi) -> None:
    ann = await api.account()
    volume = await add(api, ann)
    writer, other = [await box(api, ann, name, mount()) for name in ("writer", "other")]
    readers = [await box(api, ann, f"reader-{n}", mount(read_only=True)) for n in range(2)]
    path = f"/volumes/{volume['volume_id']}"
    await api.post(f"{writer}/start", ann)
    holder = {"sandbox_id": writer.rpartition("/")[2], "read_only": False}
    found = await api.get(path, ann)
    assert (found["status"], found["mounted_by"]) == ("mounted", [holder])
    refused = [await api.call("POST", f"{each}/start", ann) for each in (other, *readers)]
    refused += [await api.call("DELETE", path, ann)]
    refused += [await api.call("PATCH", path, ann, json={"size_gb": 1})]
    body = {"name": "copy", "copy_of": volume["volume_id"]}
    refused += [await api.call("POST", "/volumes", ann, json=body)]
    for each in refused:
        assert code_of(each) == (409, "VOLUME_MOUNTED"), each.text
        assert each.json()["error"]["details"]["sandbox_id"] == holder["sandbox_id"]
    await api.post(f"{writer}/stop", ann)
    assert (await api.get(path, ann))["status"] == "available"
    for reader in readers:
        await api.post(f"{reader}/start", ann)
    assert len((await api.get(path, ann))["mounted_by"]) == 2
    assert code_of(await api.call("POST", f"{writer}/start", ann)) == (409, "VOLUME_MOUNTED")
    await add(api, ann, "copy", copy_of=volume["volume_id"])
    for reader in readers:
        await api.call("DELETE", reader, ann)
    await api.post(f"{other}/start", ann)
    assert (await verify_platform(api.part.database)).problems == []


async def test_of_starts_at_the_same_moment_one_gets_it(api: PlatformApi) -> None:
    ann = await api.account()
    await add(api, ann)
    boxes = [await box(api, ann, f"box-{n}", mount()) for n in range(4)]
    starts = [api.call("POST", f"{each}/start", ann) for each in boxes]
    codes = sorted(each.status_code for each in await asyncio.gather(*starts))
    assert codes == [200, 409, 409, 409]


async def test_a_start_that_a_crash_interrupts_leaves_no_mount(api: PlatformApi) -> None:
    ann, runtime = await api.account(), api.part.wired.runtime
    assert isinstance(runtime, FakeRuntime)
    path = f"/volumes/{(await add(api, ann))['volume_id']}"
    lost, other = [await box(api, ann, name, mount()) for name in ("lost", "other")]
    runtime.may_start.clear()
    start = asyncio.create_task(api.call("POST", f"{lost}/start", ann))
    async with asyncio.timeout(20):
        while (await api.get(path, ann))["status"] != "mounted":
            await asyncio.sleep(0.02)
    assert code_of(await api.call("POST", f"{other}/start", ann)) == (409, "VOLUME_MOUNTED")
    start.cancel()
    await api.part.wired.sandboxes.close()  # as with the process
    runtime.may_start.set()
    api.clock.advance(60)
    await run(api, "ends")
    assert (await api.get(path, ann))["status"] == "available"
    await api.post(f"{other}/start", ann)


async def test_what_can_not_be_mounted(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    project = (await api.post("/projects", ann, {"name": "shop"}))["project_id"]
    await add(api, ann)
    await add(api, ann, "of-shop", project_id=project)
    await add(api, ann, "then", copy_of=(await add(api, ann, "now"))["volume_id"], read_only=True)
    full = await api.call("POST", "/volumes", ann, json={"name": "fifth"})
    assert code_of(full) == (409, "VOLUMES_LIMIT_EXCEEDED")
    template_id = await add_template(api)
    new = {"name": "box", "template_id": template_id}
    for caller, volumes, code in (
        (bob, [mount()], "VOLUME_NOT_USABLE"),
        (ann, [mount("missing")], "VOLUME_NOT_USABLE"),
        (ann, [mount("of-shop")], "VOLUME_NOT_USABLE"),
        (ann, [mount(), mount(path="/other")], "INVALID_REQUEST"),
        (ann, [mount(), mount("now", "/data/below")], "INVALID_REQUEST"),
        *(
            (ann, [mount(path=path)], "INVALID_REQUEST")
            for path in ("data", "/", "/usr/x", "/etc", "/a/../b", "/a/", "/workspace", "/a//b")
        ),
    ):
        answer = await api.call("POST", "/sandboxes", caller, json=new | {"volumes": volumes})
        assert code_of(answer) == (400, code), (volumes, answer.text)
    written = await api.call("POST", "/sandboxes", ann, json=new | {"volumes": [mount("then")]})
    assert code_of(written) == (409, "VOLUME_READ_ONLY")
    await box(api, ann, "in-shop", mount("of-shop"), project_id=project)
    in_use = await api.call("DELETE", f"/projects/{project}", ann)
    assert code_of(in_use) == (409, "PROJECT_IN_USE")


async def test_its_size_counts_in_the_quota_and_on_the_bill(api: PlatformApi) -> None:
    ann = await api.account()
    volume = await add(api, ann, size_gb=4)
    path = f"/volumes/{volume['volume_id']}"
    quotas = (await api.get("/me/quota", ann))["quotas"]
    counted = {each["resource"]: each["in_use"] for each in quotas}
    assert (counted["storage_gb"], counted["volumes_total"]) == (4, 1)
    too_much = [await api.call("PATCH", path, ann, json={"size_gb": 11})]
    too_much += [await api.call("POST", "/volumes", ann, json={"name": "big", "size_gb": 7})]
    assert [code_of(each) for each in too_much] == [(409, "QUOTA_EXCEEDED")] * 2
    assert files_in(api) == [volume["volume_id"]]
    api.clock.advance(10 * 3600)
    ann = logged_in(api, ann)
    await api.call("PATCH", path, ann, json={"size_gb": 1})
    api.clock.advance(20 * 3600)
    ann = logged_in(api, ann)
    await api.call("DELETE", path, ann)
    api.clock.advance(timedelta(days=2).total_seconds())
    await run(api, "billing")
    used = (await api.get("/usage", logged_in(api, ann)))["usage"]
    hours = sum(float(each["storage_hours"]) for each in used)
    assert hours == pytest.approx(4 * 10 + 1 * 20)
    assert (await verify_platform(api.part.database)).problems == []


async def test_files_without_a_volume_are_removed_and_accounts_take_theirs_along(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    volume = await add(api, ann)
    folder = api.data_dir / "runtime" / "volumes"
    (folder / "vol-interrupted").write_bytes(b"")
    for each in folder.iterdir():
        os.utime(each, (api.clock.now() - 7200,) * 2)
    await run(api, "volumes")
    assert files_in(api) == [volume["volume_id"]]
    answer = await api.call("POST", "/me/delete", ann, json={"password": "correct horse battery"})
    assert answer.is_success, answer.text
    await run(api, "deleted-accounts")
    await run(api, "volumes")
    assert files_in(api) == []
