"""What a server of 0.1.0 did beside this release, and what of it is adopted when that is gone."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.bootstrap.previews import open_log
from sandyard.kit.changes.transitions import FULL_EVERY, Cause
from sandyard.kit.clock import utc_time
from sandyard.platform.events.verification import adopt_platform_changes, verify_platform
from sandyard.platform.schema.tables import projects
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.previews.verification import adopt, verify
from tests.contract.previews.test_history import run_job
from tests.support.platform.in_process import Caller, MigratedEngines
from tests.support.previews.in_process import PreviewApi


@pytest.fixture
async def database_url(migrated: MigratedEngines, tmp_path: Path) -> str | None:
    """The one engine of Previews that two releases share."""
    return await migrated.copy("postgresql", tmp_path)


async def with_preview(api: PreviewApi) -> tuple[Caller, str]:
    caller = await api.account()
    project = await api.project(caller, **{"index.html": "x"})
    await api.sync(caller, project)
    return caller, project


async def by_0_1_0(api: PreviewApi, project_id: str, **values: Any) -> None:
    """It keeps previews in the Platform's projects, and writes no events."""
    change = projects.update().where(projects.c.project_id == project_id).values(values)
    await api.part.database.write(lambda connection: connection.execute(change))


async def change_preview(api: PreviewApi, project_id: str) -> None:
    """As 0.1.0 does after a look at the provider."""
    change = sa.text(
        "UPDATE platform.projects SET preview_revision = preview_revision + 1, sandbox_info ="
        ' sandbox_info || \'{"sandbox_id": "sbx-old"}\' WHERE project_id = :project_id'
    )
    row = {"project_id": project_id}
    await api.part.database.write(lambda connection: connection.execute(change, row))


async def adopted(api: PreviewApi) -> tuple[int, int]:
    """Baselines that the Platform and Previews got; everything is right then."""
    cause = Cause.by("system", api.clock)
    store, log = SqlPreviewStore(api.previews.database), open_log(api.previews.database)
    counts = await adopt_platform_changes(api.part.database, cause), await adopt(store, log, cause)
    assert (await verify_platform(api.part.database)).problems == []
    assert (await verify(store, log)).problems == []
    return counts


async def test_what_it_changed_last_gets_one_baseline(api: PreviewApi) -> None:
    _, project = await with_preview(api)
    assert await adopted(api) == (0, 0)
    await by_0_1_0(api, project, name="renamed")
    await change_preview(api, project)
    assert await adopted(api) == (1, 1)
    assert await adopted(api) == (0, 0)


async def test_what_this_release_has_removed_since_needs_none(api: PreviewApi) -> None:
    """So how many there are depends on whether a job came first."""
    caller, project = await with_preview(api)
    await change_preview(api, project)
    answer = await api.call("DELETE", f"/projects/{project}", caller)
    assert answer.status_code == 204
    assert (await run_job(api, "deleted-projects")).removed == 1
    assert await adopted(api) == (0, 0)


async def test_what_it_deleted_is_removed_by_a_job_of_this_release(api: PreviewApi) -> None:
    _, project = await with_preview(api)
    await change_preview(api, project)
    await by_0_1_0(api, project, deleted_at=utc_time(api.clock.now()))
    assert (await run_job(api, "deleted-projects")).removed == 1
    assert await adopted(api) == (1, 0)


@pytest.mark.parametrize(("changes", "baselines"), [(1, 1), (FULL_EVERY - 2, 0)])
async def test_an_event_of_this_release_with_the_whole_state_stands_for_one(
    api: PreviewApi, changes: int, baselines: int
) -> None:
    """A new project's sequence is 1, each change counts it up, and the last is this release's."""
    caller = await api.account()
    project = await api.project(caller)
    for number in range(changes):
        await by_0_1_0(api, project, name=f"renamed {number}")
    answer = await api.call("PATCH", f"/projects/{project}", caller, json={"description": "new"})
    assert answer.status_code == 200
    assert await adopted(api) == (baselines, 0)
