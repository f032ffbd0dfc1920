"""Images of accounts, on each engine: pulled, counted, billed, given up and cleaned."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.access.guard import RequestRate
from sandyard.platform.events.verification import verify_platform
from sandyard.platform.images.jobs import ImagesReport
from sandyard.runtime.local.root_filesystems.images import IMAGES
from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi, code_of
from tests.support.runtime.images import SETTINGS, distroless, with_shell
from tests.support.runtime.root_file_systems import docker_archive, image_config

ARCHIVE = docker_archive(distroless(), config=image_config(**SETTINGS))
OTHER = docker_archive(distroless(), with_shell(), config=image_config())
DAY = timedelta(days=1)


async def add(api: PlatformApi, caller: Caller, archive: bytes = ARCHIVE) -> Any:
    """The image once it is ready or has failed."""
    sent = await api.call(
        "POST", "/images/import", caller, params={"name": "mine"}, content=archive
    )
    assert sent.status_code == 202, sent.text
    path = f"/images/{sent.json()['image_id']}"
    async with asyncio.timeout(20):
        while (image := await api.get(path, caller))["status"] == "pulling":
            await asyncio.sleep(0.02)
    return image


def logged_in(api: PlatformApi, caller: Caller) -> Caller:
    """Anew."""
    now = utc_time(api.clock.now())
    login = api.part.logins.issue(account_id=caller.account_id, token_version=0, now=now)
    return replace(caller, headers={"Authorization": f"Bearer {login.access_token}"})


async def clean(api: PlatformApi) -> ImagesReport:
    [job] = [each for each in api.part.schedule if each.name.startswith("images")]
    report: ImagesReport = await api.part.runner.run(job)
    return report


def parts_in(api: PlatformApi) -> int:
    return len(list((api.data_dir / "runtime" / IMAGES).glob("*.tar")))


async def quota(api: PlatformApi, caller: Caller) -> dict[str, float]:
    found = (await api.get("/me/quota", caller))["quotas"]
    return {each["resource"]: each["in_use"] for each in found}


async def test_parts_are_shared_counted_and_go_with_the_last_image(api: PlatformApi) -> None:
    ann = await api.account()
    first, second = await add(api, ann), await add(api, ann, OTHER)
    assert (first["status"], second["status"]) == ("ready", "ready"), (first, second)
    assert parts_in(api) == 2 + 2 + 3 - 1, "two manifests, two settings, and a shared layer"
    counted = await quota(api, ann)
    assert counted["images_total"] == 2
    sizes = first["size_bytes"] + second["size_bytes"]
    assert counted["storage_gb"] == pytest.approx(sizes / (1 << 30), abs=1e-5)
    deleted = await api.call("DELETE", f"/images/{first['image_id']}", ann)
    assert deleted.status_code == 204
    for part in (api.data_dir / "runtime" / IMAGES).iterdir():
        os.utime(part, (api.clock.now(),) * 2)
    assert (await clean(api)).parts_removed == 0, "they are new"
    api.clock.advance(3 * 3600)
    assert (await clean(api)).parts_removed == 2, "its manifest and its settings"
    await api.call("DELETE", f"/images/{second['image_id']}", ann)
    assert (await clean(api)).parts_removed == 4
    assert parts_in(api) == 0
    assert (await verify_platform(api.part.database)).problems == []


async def test_its_storage_is_billed_without_a_sandbox(api: PlatformApi) -> None:
    ann = await api.account()
    image = await add(api, ann)
    api.clock.advance(DAY.total_seconds())
    ann = logged_in(api, ann)
    await api.call("DELETE", f"/images/{image['image_id']}", ann)
    api.clock.advance(DAY.total_seconds())
    ann = logged_in(api, ann)
    [job] = [each for each in api.part.schedule if each.name == "billing"]
    for _ in range(2):
        await api.part.runner.run(job)
    usages = (await api.get("/usage", ann))["usage"]
    assert {each["sandbox_id"] for each in usages} == {None}
    assert sum(each["milliseconds"] for each in usages) == 1000 * DAY.total_seconds()
    bills = (await api.get("/billing", ann))["bills"]
    assert {each["service_type"] for each in bills} == {"storage"}
    assert all("an image" in each["description"] for each in bills)
    assert (await verify_platform(api.part.database)).problems == []


async def test_a_pull_whose_process_has_gone_is_given_up(api: PlatformApi) -> None:
    ann = await api.account()
    begun = await api.call("POST", "/images", ann, json={"reference": "10.0.0.1/x"})
    await api.part.wired.images.close()
    assert (await clean(api)).given_up == 0
    api.clock.advance(121)
    assert (await clean(api)).given_up == 1
    failed = await api.get(f"/images/{begun.json()['image_id']}", ann)
    assert failed["status"] == "failed"
    assert failed["reason"]


async def test_pulling_and_deleting_in_a_loop_has_a_budget(
    api: PlatformApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no image has stays on the disk for two hours."""
    rate = RequestRate("3 per 2 hours", "async+memory://")
    monkeypatch.setattr(api.part.wired.images, "_megabytes", rate)
    ann, bob = await api.account(), await api.account()
    first = await add(api, ann)
    assert first["status"] == "ready", first["reason"]
    assert (await api.call("DELETE", f"/images/{first['image_id']}", ann)).status_code == 204
    second = await add(api, ann)
    assert second["status"] == "failed"
    assert "twice its quota of storage" in second["reason"]
    assert (await add(api, bob))["status"] == "ready"


async def test_what_can_not_be_unpacked_fails_with_the_reason(api: PlatformApi) -> None:
    ann = await api.account()
    for archive in (b"", docker_archive(b"no layer", config=image_config())):
        failed = await add(api, ann, archive)
        assert failed["status"] == "failed"
        assert failed["reason"], failed
    assert (await quota(api, ann))["storage_gb"] == 0


async def test_names_and_secrets_are_checked(api: PlatformApi) -> None:
    ann = await api.account()
    for body, status in [
        ({"reference": "not an image"}, 400),
        ({"reference": "x", "secret": "A"}, 400),
        ({"reference": "x", "secret": "A", "project_id": "prj-" + "a" * 17}, 404),
    ]:
        answer = await api.call("POST", "/images", ann, json=body)
        assert answer.status_code == status, answer.text


async def test_a_public_template_lends_its_image_and_nothing_else_does(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    image = await add(api, ann)
    body = {"category": "web", "language": "any", "image": image["image_id"]}
    shown = await api.post("/templates", ann, {**body, "name": "shown"})
    refused = await api.call("POST", "/templates", bob, json={**body, "name": "mine"})
    assert code_of(refused) == (404, "IMAGE_NOT_FOUND")
    public = await api.call(
        "PATCH", f"/templates/{shown['template_id']}", ann, json={"is_public": True}
    )
    assert public.status_code == 200
    await api.post("/templates", bob, {**body, "name": "mine"})
    hidden = await api.call("GET", f"/images/{image['image_id']}", bob)
    assert hidden.status_code == 404
    missing = {**body, "image": "img-" + "a" * 17, "name": "x"}
    assert (await api.call("POST", "/templates", ann, json=missing)).status_code == 404


async def test_images_go_with_their_account(api: PlatformApi) -> None:
    ann = await api.account()
    await add(api, ann)
    await api.call("POST", "/me/delete", ann, json={"password": PASSWORD})
    [job] = [each for each in api.part.schedule if each.name == "deleted-accounts"]
    await api.part.runner.run(job)
    assert await api.part.wired.images.bytes_of(ann.account_id) == 0
    assert (await verify_platform(api.part.database)).problems == []
