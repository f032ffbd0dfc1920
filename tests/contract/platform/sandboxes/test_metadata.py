"""What is noted with a sandbox, and what is given up when its time is over, on every engine."""

from dataclasses import replace

from sandyard.kit.changes.transitions import Cause, changed
from sandyard.platform.entities.model import Listing
from sandyard.platform.sandboxes.model import SandboxFilter, Status
from tests.support.platform.in_process import PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox


async def test_metadata_is_kept_as_it_was_given(api: PlatformApi) -> None:
    ann = await api.account()
    noted = {"a b": "é/\"'", "": ""}
    made = await add_sandbox(api, ann, metadata=noted, recycle_on_timeout=True)
    shown = await api.get(f"/sandboxes/{made['sandbox_id']}", ann)
    assert (shown["metadata"], shown["recycle_on_timeout"]) == (noted, True)
    plain = await add_sandbox(api, ann)
    assert (plain["metadata"], plain["recycle_on_timeout"]) == ({}, False)
    body = {"name": "x", "template_id": plain["template_id"], "metadata": {"a": 1}}
    refused = await api.call("POST", "/sandboxes", ann, json=body)
    assert code_of(refused) == (400, "INVALID_REQUEST")


async def test_those_whose_time_is_over_are_found_on_their_node(api: PlatformApi) -> None:
    ann, store = await api.account(), api.part.wired.store
    cause = Cause.by("system", api.clock)
    ids = []
    for recycles in (True, False):
        made = await add_sandbox(api, ann, recycle_on_timeout=recycles)
        ids.append(made["sandbox_id"])
        found = await store.find(made["sandbox_id"])
        assert found is not None
        assert await store.to_recycle("here", now=cause.at) == []
        over = replace(found, status=Status.TIMEOUT, node="here")
        assert await store.apply(changed(found, over, "sandbox.timed_out", cause))
        if recycles:
            assert [each.sandbox_id for each in await store.to_recycle("here", now=cause.at)] == [
                ids[0]
            ]
            assert await store.to_recycle("elsewhere", now=cause.at) == []
            assert (await api.call("DELETE", f"/sandboxes/{ids[0]}", ann)).is_success
    assert await store.to_recycle("here", now=cause.at) == []
    kept = await store.page(
        ann.account_id, Listing(SandboxFilter(is_recycled=False), "-created_at", 10, None)
    )
    assert [each.sandbox_id for each in kept.items] == [ids[1]]
