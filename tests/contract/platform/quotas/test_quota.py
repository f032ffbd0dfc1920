"""An account sees its quota and what of it is in use."""

from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.templates.model import NewTemplate
from tests.contract.platform.lives import life
from tests.support.platform.in_process import Caller, PlatformApi
from tests.support.platform.sandboxes import add_template


async def quotas(api: PlatformApi, caller: Caller) -> dict[str, tuple[Any, Any]]:
    found = (await api.get("/me/quota", caller))["quotas"]
    return {each["resource"]: (each["in_use"], each["limit"]) for each in found}


async def test_it_follows_what_runs_and_what_is_kept(api: PlatformApi) -> None:
    ann, bob, template_id = await api.account(), await api.account(), await add_template(api)
    unused = await quotas(api, ann)
    assert unused == {
        "sandboxes": (0, 5),
        "cpu": (0, 8),
        "memory_gb": (0, 16),
        "storage_gb": (0, 20),
        "snapshot_bytes": (0, None),
        "projects_total": (1, 1000),
        "templates_total": (0, 1000),
        "images_total": (0, 100),
        "sandboxes_total": (0, 1000),
        "variables_total": (0, 1000),
        "volumes_total": (0, 100),
    }
    boxes = [await life(api, ann.account_id, template_id, memory_spec=0.5) for _ in range(3)]
    now = utc_time(api.clock.now())
    await boxes[0].start(now, 1.5)
    await boxes[1].start(now, 2)
    await boxes[2].start(now)
    await boxes[2].end(now, 2**53 - 1)
    assert await quotas(api, ann) == {
        "sandboxes": (2, 5),
        "cpu": (3.5, 8),
        "memory_gb": (1, 16),
        "storage_gb": (4 + 2**23, 20),
        "snapshot_bytes": (2**53 - 1, None),
        "projects_total": (1, 1000),
        "templates_total": (0, 1000),
        "images_total": (0, 100),
        "sandboxes_total": (3, 1000),
        "variables_total": (0, 1000),
        "volumes_total": (0, 100),
    }
    text = (await api.call("GET", "/me/quota", ann)).text
    for counted in ('"in_use":2,"limit":5}', f'"in_use":{2**53 - 1},', '"in_use":3,"limit":1000}'):
        assert counted in text, "no count has a decimal point"
    assert await quotas(api, bob) == unused
    for each in boxes:
        await each.end(now)
        await each.recycle(now)
    assert await quotas(api, ann) == unused


async def test_what_a_start_is_refused_by_is_what_is_shown(api: PlatformApi) -> None:
    ann, template_id = await api.account(), await add_template(api)
    boxes = [await life(api, ann.account_id, template_id) for _ in range(6)]
    for each in boxes[:5]:
        await each.start(utc_time(api.clock.now()))
    refused = await api.call("POST", f"/sandboxes/{boxes[5].sandbox_id}/start", ann)
    assert refused.status_code == 409
    for resource, exceeded in refused.json()["error"]["details"].items():
        shown = (await quotas(api, ann))[resource]
        assert shown == (exceeded["in_use"], exceeded["limit"])


async def test_a_start_is_refused_if_all_that_is_stored_and_may_be_exceeds_the_quota(
    api: PlatformApi,
) -> None:
    """Twenty GB: two of a workspace that runs, two of one that was not stored, fifteen of
    snapshots, one of a build."""
    ann, template_id = await api.account(), await add_template(api)
    now = utc_time(api.clock.now())
    running, unstored, stopped, refused = [
        await life(api, ann.account_id, template_id) for _ in range(4)
    ]
    for each, size in ((unstored, None), (stopped, 15 * 2**30)):
        await each.start(now)
        await each.end(now, size)
    await add_build(api, ann, stopped.sandbox_id, 2**30)
    assert (await quotas(api, ann))["storage_gb"] == (18, 20)
    await running.start(now)
    answer = await api.call("POST", f"/sandboxes/{refused.sandbox_id}/start", ann)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "QUOTA_EXCEEDED")
    assert error["details"] == {"storage_gb": {"limit": 20, "in_use": 20, "asked": 2}}
    assert "20 of 20 storage_gb in use, 2 needed" in error["message"]
    await stopped.recycle(now)
    assert (await quotas(api, ann))["storage_gb"] == (5, 20)


async def test_what_other_parts_store_counts_too(api: PlatformApi) -> None:
    ann, template_id = await api.account(), await add_template(api)
    box = await life(api, ann.account_id, template_id)

    async def stored(account_id: str) -> int:
        return 19 * 2**30 if account_id == ann.account_id else 0

    storage = api.part.wired.storage
    storage.add(stored)
    answer = await api.call("POST", f"/sandboxes/{box.sandbox_id}/start", ann)
    assert answer.json()["error"]["details"]["storage_gb"]["in_use"] == 19
    assert await storage.left_bytes(ann.account_id) == 2**30
    await storage.require(ann.account_id, 2**30, error=QuotaExceededError)
    with pytest.raises(QuotaExceededError, match="19 of 20 storage_gb in use"):
        await storage.require(ann.account_id, 2**30 + 2**20, error=QuotaExceededError)
    assert (await quotas(api, await api.account()))["storage_gb"] == (0, 20)


async def add_build(api: PlatformApi, caller: Caller, by: str, size_bytes: int) -> None:
    """A template with an archive of this size."""
    new = NewTemplate(
        name="built",
        description=None,
        category="build",
        language="python",
        min_cpu_required=1,
        min_memory_required=1,
        is_official=False,
        is_public=False,
        repository_url="builtin:static",
        tags=None,
        archived_by=by,
        archive_bytes=size_bytes,
    )
    await api.part.templates.create(Principal(caller.account_id, Role.USER), new)
