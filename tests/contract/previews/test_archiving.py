"""Files are written before their project is archived, or not at all."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Transition
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.projects.service import Projects
from sandyard.platform.projects.sql import SqlProjectStore
from sandyard.previews.errors import PreviewProjectArchivedError, PreviewProjectNotFoundError
from sandyard.previews.files import ChangeSet, Entry
from sandyard.previews.model import Preview
from sandyard.previews.project_files import ProjectFiles
from sandyard.previews.stores.sql import SqlPreviewStore
from tests.support.platform.in_process import Caller
from tests.support.previews.in_process import PreviewApi, files_over


class GatedStore(SqlPreviewStore):
    """Stops before it reads files, or before it writes them."""

    def __init__(self, api: PreviewApi, gate: str) -> None:
        super().__init__(api.previews.database)
        self._gate = gate
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def entries(self, project_id: str, **of: Any) -> Mapping[str, Entry]:
        await self._pass("files")
        return await super().entries(project_id, **of)

    async def apply(self, transition: Transition[Preview], **more: Any) -> bool:
        await self._pass("apply")
        return await super().apply(transition, **more)

    async def _pass(self, gate: str) -> None:
        if gate == self._gate:
            self.reached.set()
            await self.opened.wait()


def another_process(api: PreviewApi) -> Projects:
    """The projects of a process on the same engine, which on SQLite is this one."""
    database = api.part.database
    if not database.concurrent_writers:
        return api.part.projects
    store = SqlProjectStore(database, platform_transitions(database))
    return Projects(store, clock=api.clock, per_account=100)


def principal(caller: Caller) -> Principal:
    return Principal(caller.account_id, Role.USER, key_id=None)


def writing(files: ProjectFiles, caller: Caller, project: str) -> "asyncio.Task[int]":
    return asyncio.create_task(
        files.change(
            project, ChangeSet({"a": b"late"}), account_id=caller.account_id, actor="system"
        )
    )


@pytest.mark.parametrize("end", ["archive", "delete"])
async def test_what_ends_a_project_before_the_write_refuses_it(api: PreviewApi, end: str) -> None:
    caller = await api.account()
    project = await api.project(caller, a="first")
    store = GatedStore(api, "files")
    write = writing(files_over(api, store), caller, project)
    await asyncio.wait_for(store.reached.wait(), 30)
    await getattr(another_process(api), end)(principal(caller), project)
    store.opened.set()
    with pytest.raises((PreviewProjectArchivedError, PreviewProjectNotFoundError)):
        await write
    assert [file.content for file in await store.files(project)] == [b"first"]


@pytest.mark.parametrize("end", ["archive", "delete"])
async def test_what_comes_during_the_write_waits_for_it(api: PreviewApi, end: str) -> None:
    caller = await api.account()
    project = await api.project(caller, a="first")
    store = GatedStore(api, "apply")
    write = writing(files_over(api, store), caller, project)
    await asyncio.wait_for(store.reached.wait(), 30)
    ending = asyncio.create_task(getattr(another_process(api), end)(principal(caller), project))
    done, _ = await asyncio.wait({ending}, timeout=0.3)
    assert not done
    store.opened.set()
    assert await write == 2
    await ending
