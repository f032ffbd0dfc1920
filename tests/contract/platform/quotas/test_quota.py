"""An account sees its quota and what of it is in use."""

from typing import Any

from sandyard.kit.clock import utc_time
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
        "snapshot_bytes": (0, None),
        "projects_total": (1, 1000),
        "templates_total": (0, 1000),
        "sandboxes_total": (0, 1000),
        "variables_total": (0, 1000),
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
        "snapshot_bytes": (2**53 - 1, None),
        "projects_total": (1, 1000),
        "templates_total": (0, 1000),
        "sandboxes_total": (3, 1000),
        "variables_total": (0, 1000),
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
