"""Attempts to create a preview on this machine whose server has died."""

import asyncio
from datetime import timedelta
from pathlib import Path

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import utc_time
from sandyard.previews.model import Attempt, Quota, begin_attempt
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.runtime.model import RunId
from tests.support.e2b.double import e2b_double
from tests.support.previews.in_process import preview_api
from tests.support.previews.providers import local_provider
from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import end_all


async def test_an_attempt_whose_start_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    """It would take the hour that the attempt has left; nothing of it runs, and never will."""
    runtime = LocalRuntime(tmp_path / "runtime")
    provider = local_provider(runtime)
    async with (
        e2b_double() as double,
        preview_api(None, tmp_path, double, provider=provider) as api,
    ):
        ann = await api.account()
        project = await api.project(ann, **{"index.html": "hello"})
        first = (await api.sync(ann, project))["data"]["sandbox_info"]["sandbox_id"]
        await runtime.stop(RunId("preview", *first.split(".")))
        assert (await api.status(ann, project))["status"] == "expired"
        store, now = SqlPreviewStore(api.previews.database), utc_time(api.clock.now())
        preview = await store.find(project)
        assert preview is not None
        begun = Attempt(first.partition(".")[2], now + timedelta(hours=1))
        quota = Quota(3, await store.running(preview.account_id, at=now))
        cause = Cause.by("a server that has died", api.clock)
        assert await store.apply(begin_attempt(preview, begun, quota=quota, cause=cause))
        async with asyncio.timeout(40):
            synced = await api.sync(ann, project)
        assert synced["data"]["outcome"] == "created"
        assert synced["data"]["sandbox_info"]["sandbox_id"] != first
        history = (await api.get(f"/projects/{project}/sandbox/history", ann))["events"]
        kinds = {event["kind"]: event for event in history}
        assert kinds["preview.abandoned"]["reason"] == "It was stopped."
    await end_all(runtime)
