"""What happens between two steps of a use case does not get lost."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.previews.errors import (
    PreviewBusyError,
    PreviewProjectArchivedError,
    VersionNotFoundError,
)
from sandyard.previews.files import ChangeSet, Entry, ProjectFile
from sandyard.previews.model import abandon_attempt
from sandyard.previews.ports import PreviewSandbox
from sandyard.previews.providers.remote import RemotePreviewProvider
from sandyard.previews.stores.sql import SqlPreviewStore
from tests.support.e2b.double import E2bDouble
from tests.support.previews.in_process import (
    QUICK,
    PreviewApi,
    another_replica,
    files_over,
    minutes,
)
from tests.support.previews.providers import connect_to

Meanwhile = Callable[[], Awaitable[object]]


class SlowProvider(RemotePreviewProvider):
    """Something happens between its making a sandbox, or finding an attempt, and its saying so."""

    meanwhile: Meanwhile | None = None

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        made = await super().create(project_id=project_id, attempt=attempt, files=files, ttl=ttl)
        await self._do_meanwhile()
        return made

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        found = await super().find_attempt(project_id=project_id, attempt=attempt)
        await self._do_meanwhile()
        return found

    async def _do_meanwhile(self) -> None:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()


class SlowStore(SqlPreviewStore):
    """Something happens before it reads files."""

    meanwhile: Meanwhile | None = None
    before_files: Meanwhile | None = None

    async def files(self, project_id: str, **of: Any) -> Sequence[ProjectFile]:
        if self.before_files is not None:
            await self.before_files()
        return await super().files(project_id, **of)

    async def entries(self, project_id: str, **of: Any) -> Mapping[str, Entry]:
        if (meanwhile := self.meanwhile) is not None:
            self.meanwhile = None
            await meanwhile()
        return await super().entries(project_id, **of)


@pytest.fixture
def provider(double: E2bDouble) -> SlowProvider:
    provider = connect_to(double, timeouts=QUICK, kind=SlowProvider)
    assert isinstance(provider, SlowProvider)
    return provider


async def test_an_account_that_is_deactivated_during_a_sync_gets_no_sandbox(
    api: PreviewApi, double: E2bDouble, provider: SlowProvider
) -> None:
    admin, caller = await api.admin(), await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    provider.meanwhile = lambda: api.post(f"/admin/users/{caller.account_id}/deactivate", admin)
    previews = another_replica(api, provider)
    with pytest.raises(PreviewBusyError):
        await previews.sync(project, account_id=caller.account_id, actor="account:1")
    assert double.calls["create"] == 1
    assert double.boxes == []


async def test_a_project_that_is_archived_during_a_sync_gets_no_sandbox(
    api: PreviewApi, double: E2bDouble, provider: SlowProvider
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject("drop", "create", times=1)
    assert (await api.call("POST", f"/projects/{project}/sync", caller)).status_code == 503
    api.clock.advance(minutes(2))
    provider.meanwhile = lambda: api.post(f"/projects/{project}/archive", caller)
    previews = another_replica(api, provider)
    with pytest.raises(PreviewProjectArchivedError):
        await previews.sync(project, account_id=caller.account_id, actor="system")
    assert double.boxes == []
    await previews.close()


async def test_a_found_sandbox_whose_attempt_stands_no_more_is_killed(
    api: PreviewApi, double: E2bDouble, provider: SlowProvider
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    double.inject("drop_after", "create", times=1)
    assert (await api.call("POST", f"/projects/{project}/sync", caller)).status_code == 503
    [found] = double.boxes
    store = SqlPreviewStore(api.previews.database)

    async def abandon() -> None:
        preview = await store.find(project)
        assert preview is not None
        assert preview.attempt is not None
        cause = Cause.by("system", api.clock)
        abandoned = abandon_attempt(preview, preview.attempt.id, cause=cause)
        assert abandoned is not None
        assert await store.apply(abandoned)

    provider.meanwhile = abandon
    previews = another_replica(api, provider)
    synced = await previews.sync(project, account_id=caller.account_id, actor="system")
    assert synced.outcome == "created"
    assert [box.sandbox_id for box in double.boxes] == [synced.info.sandbox_id]
    assert synced.info.sandbox_id != found.sandbox_id
    await previews.close()


async def test_a_sandbox_that_runs_but_takes_no_files_is_asked_with_pauses_and_not_for_ever(
    api: PreviewApi, double: E2bDouble, provider: SlowProvider
) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "hello"})
    await api.sync(caller, project)
    await api.put_files(caller, project, {"index.html": "new"})
    double.inject("not_found", "connect")
    double.reset_counts()
    previews = another_replica(api, provider)
    with pytest.raises(PreviewBusyError):
        await previews.sync(project, account_id=caller.account_id, actor="system")
    assert 1 < double.calls["connect"] <= 7, "half a second, with pauses of a tenth"
    await previews.close()


async def test_where_nothing_is_different_the_version_is_that_of_the_files(
    api: PreviewApi,
) -> None:
    caller = await api.account()
    project = await api.project(caller)
    store = SlowStore(api.previews.database)
    store.meanwhile = lambda: api.put_files(caller, project, {"a.txt": "same"})
    same = ChangeSet({"a.txt": b"same"})
    version = await files_over(api, store).change(
        project, same, account_id=caller.account_id, actor="system"
    )
    assert version == 1


async def test_versions_that_go_while_they_are_compared_are_not_found(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller, a="1", b="1")
    await api.put_files(caller, project, {"a": "2", "b": "2"})
    store = SlowStore(api.previews.database)
    keep = f"/projects/{project}/versions?keep=1"
    store.before_files = lambda: api.call("DELETE", keep, caller)
    with pytest.raises(VersionNotFoundError):
        await files_over(api, store).compare(
            project, since=1, version=2, account_id=caller.account_id
        )
