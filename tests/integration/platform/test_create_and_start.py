"""Sandboxes that are created and started in one call, and the deadlines of their runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.bootstrap.publish_sandboxes import AccountSandboxes
from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.entities.model import Listing
from sandyard.platform.sandboxes.model import (
    NewSandbox,
    RunOptions,
    Sandbox,
    SandboxFilter,
    Status,
)
from sandyard.platform.sandboxes.secrets_model import SecretVariable
from sandyard.platform.templates.errors import TemplateNotFoundError
from sandyard.previews.files import PublishAttempt
from tests.fakes.runtime import FakeRuntime
from tests.support.clocks import RunningClock
from tests.support.platform.in_process import PlatformApi, platform_api
from tests.support.platform.sandboxes import add_template


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[PlatformApi]:
    runtime = FakeRuntime(tmp_path / "machines")
    async with platform_api(None, tmp_path, RunningClock(), runtime=runtime) as api:
        yield api


async def owner_of(api: PlatformApi) -> Principal:
    return Principal((await api.account()).account_id, Role.USER)


async def new_sandbox(api: PlatformApi) -> NewSandbox:
    return NewSandbox("box", await add_template(api), None, None, 1.0, 1.0, 60)


async def statuses(api: PlatformApi, owner: Principal) -> list[Status]:
    listing = Listing(SandboxFilter(), "created_at", 10, None)
    page = await api.part.wired.sandboxes.list(listing, account_id=owner.account_id)
    return [each.status for each in page.items]


async def test_it_runs_with_its_secrets_and_is_prepared(api: PlatformApi) -> None:
    owner, prepared = await owner_of(api), list[str]()

    async def prepare(sandbox: Sandbox) -> None:
        variables = await api.part.variables.of_sandbox(sandbox)
        prepared.append(variables["TOKEN"])

    made = await api.part.wired.sandboxes.create_and_start(
        await new_sandbox(api),
        by=owner,
        secrets=[SecretVariable("TOKEN", "s3cret")],
        prepare=prepare,
    )
    assert (made.status, prepared) == (Status.RUNNING, ["s3cret"])


async def test_a_run_may_have_a_deadline_of_its_own(api: PlatformApi) -> None:
    owner, sandboxes = await owner_of(api), api.part.wired.sandboxes
    made = await sandboxes.create_and_start(await new_sandbox(api), by=owner)
    lasts = []
    for run_seconds in (7, None):
        await sandboxes.stop(made.sandbox_id, by=owner)
        again = await sandboxes.start(made.sandbox_id, by=owner, options=RunOptions(run_seconds))
        assert again.started_at is not None
        assert again.timeout_at is not None
        lasts.append(round((again.timeout_at - again.started_at).total_seconds()))
        assert again.max_running_seconds == 60
    assert lasts == [7, 60]


async def test_a_sandbox_that_its_owner_stopped_has_no_deadline(api: PlatformApi) -> None:
    owner, sandboxes = await owner_of(api), api.part.wired.sandboxes
    made = await sandboxes.create_and_start(await new_sandbox(api), by=owner)
    assert made.timeout_at is not None
    stopped = await sandboxes.stop(made.sandbox_id, by=owner)
    assert (stopped.status, stopped.timeout_at) == (Status.STOPPED, None)


async def test_one_that_cannot_be_prepared_is_recycled(api: PlatformApi) -> None:
    owner = await owner_of(api)

    async def prepare(_: Sandbox) -> None:
        raise ValueError("its start command fails")

    with pytest.raises(ValueError, match="its start command fails"):
        await api.part.wired.sandboxes.create_and_start(
            await new_sandbox(api), by=owner, prepare=prepare
        )
    assert await statuses(api, owner) == [Status.RECYCLED]
    assert await api.part.wired.runtime.list_runs("sandbox") == []


async def test_one_whose_caller_went_away_is_recycled(api: PlatformApi) -> None:
    owner, is_preparing = await owner_of(api), asyncio.Event()

    async def prepare(_: Sandbox) -> None:
        is_preparing.set()
        await asyncio.sleep(60)

    call = asyncio.create_task(
        api.part.wired.sandboxes.create_and_start(await new_sandbox(api), by=owner, prepare=prepare)
    )
    await is_preparing.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await statuses(api, owner) == [Status.RECYCLED]


async def test_a_recycling_that_the_engine_refused_midway_is_finished_by_a_job(
    api: PlatformApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, sandboxes = await owner_of(api), api.part.wired.sandboxes
    made = await sandboxes.create_and_start(await new_sandbox(api), by=owner)

    async def away(*_: object, **__: object) -> bool:
        raise UnavailableError

    with monkeypatch.context() as patch:
        patch.setattr(api.part.wired.recorder, "record_ended", away)
        with pytest.raises(UnavailableError):
            await sandboxes.recycle(made.sandbox_id, by=owner)
    assert await statuses(api, owner) == [Status.RUNNING]
    [job] = [job for job in api.part.schedule if job.name.split()[0] == "ends"]
    await api.part.runner.run(job)
    assert await statuses(api, owner) == [Status.RECYCLED]


async def test_publishing_without_its_official_template_says_who_can_mend_that(
    api: PlatformApi,
) -> None:
    owner, admin = await owner_of(api), await api.account(role=Role.ADMIN)
    await api.part.templates.add_official()
    listed = (await api.get("/templates?limit=100", admin))["templates"]
    [official] = [each for each in listed if each["repository_url"] == "builtin:python"]
    await api.call("DELETE", f"/templates/{official['template_id']}", admin)
    sandboxes = AccountSandboxes(api.part, 1.0)
    attempt = PublishAttempt("a", 1, "build", utc_time(api.clock.now()))
    with pytest.raises(TemplateNotFoundError, match="An admin can create it"):
        await sandboxes.start("p", attempt, {}, account_id=owner.account_id, actor="owner")
    assert await statuses(api, owner) == []
