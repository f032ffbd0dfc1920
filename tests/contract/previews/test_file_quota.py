"""What the files of an account may take together, and that those of deleted projects go."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.previews.stores.tables import (
    events,
    file_versions,
    past_contents,
    project_files,
)
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, preview_api

LIMIT = 1000
SECRET = "of nobody else's business"


@pytest.fixture
def keep_versions() -> int:
    return 1


@pytest.fixture
async def replicas(
    database_url: str | None, tmp_path: Path, double: E2bDouble, keep_versions: int
) -> AsyncIterator[list[PreviewApi]]:
    """Two on PostgreSQL; a SQLite file has one process."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                preview_api(
                    database_url,
                    tmp_path,
                    double,
                    file_bytes_per_account=LIMIT,
                    preview_keep_versions=keep_versions,
                )
            )
            for _ in range(1 if database_url is None else 2)
        ]


async def write(api: PreviewApi, caller: Caller, project: str, size: int) -> tuple[int, str]:
    body = {"files": [{"path": "a", "content": "x" * size}]}
    answer = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
    return (200, "") if answer.status_code == 200 else code_of(answer)


async def kept(api: PreviewApi) -> str:
    """All that is stored of files, and all that is told of them."""
    found = await api.previews.database.read(
        lambda connection: [
            connection.execute(sa.select(table)).all()
            for table in (project_files, past_contents, file_versions, events)
        ]
    )
    return repr(found)


DONE, TOO_MUCH = (200, ""), (409, "FILE_BYTES_LIMIT_EXCEEDED")


async def test_projects_share_the_quota_of_their_account_also_at_once(
    replicas: list[PreviewApi],
) -> None:
    first = replicas[0]
    ann, bob = await first.account(), await first.account()
    projects = [await first.project(ann) for _ in range(6)]
    found = await asyncio.gather(
        *(write(replicas[n % len(replicas)], ann, each, 400) for n, each in enumerate(projects))
    )
    assert sorted(found) == [DONE] * 2 + [TOO_MUCH] * 4
    mine = projects[found.index(DONE)]
    assert await write(first, bob, await first.project(bob), LIMIT) == DONE
    assert await write(first, ann, mine, 600) == DONE, "exactly what is left"
    assert await write(first, ann, mine, 601) == TOO_MUCH
    assert await write(first, ann, mine, 10) == DONE
    assert await write(first, ann, projects[found.index(TOO_MUCH)], 590) == DONE


async def test_files_of_a_deleted_project_make_room_and_are_gone(
    replicas: list[PreviewApi],
) -> None:
    [api, *_] = replicas
    ann = await api.account()
    old, new = await api.project(ann, secret=SECRET * 30), await api.project(ann)
    assert await write(api, ann, new, 600) == TOO_MUCH
    assert (await api.call("DELETE", f"/projects/{old}", ann)).status_code == 204
    assert await write(api, ann, new, 600) == DONE
    assert SECRET not in await kept(api)


async def test_what_a_deleted_project_held_goes_within_the_hour_also_if_its_preview_can_not_end(
    replicas: list[PreviewApi], double: E2bDouble
) -> None:
    [api, *_] = replicas
    ann = await api.account()
    project = await api.project(ann, secret=SECRET)
    await api.sync(ann, project)
    assert (await api.call("DELETE", f"/projects/{project}", ann)).status_code == 204
    assert SECRET in await kept(api)
    [job] = [job for job in api.previews.schedule if job.name == "deleted-projects"]
    assert job.interval_sec <= 3600 / 2
    double.inject("unavailable", "delete")
    assert (await api.previews.runner.run(job)).failed == 1
    assert SECRET not in await kept(api)
    double.calm()
    assert (await api.previews.runner.run(job)).removed == 1


@pytest.mark.parametrize("keep_versions", [9])
async def test_earlier_versions_count_until_they_are_removed(replicas: list[PreviewApi]) -> None:
    [api, *_] = replicas
    ann = await api.account()
    project = await api.project(ann)
    for size in (300, 301, 302):
        assert await write(api, ann, project, size) == DONE
    assert await write(api, ann, project, 303) == TOO_MUCH
    quotas = {each["resource"]: each for each in (await api.get("/me/quota", ann))["quotas"]}
    assert quotas["file_bytes"]["in_use"] == 903
    assert await api.put_files(ann, project, {}, "a") == 4, "a deletion adds nothing"
    removed = await api.call("DELETE", f"/projects/{project}/versions?keep=1", ann)
    assert removed.status_code == 204
    assert await write(api, ann, project, 700) == DONE


@pytest.mark.parametrize("keep_versions", [9])
async def test_what_a_deleted_project_had_in_earlier_versions_goes_too(
    replicas: list[PreviewApi],
) -> None:
    [api, *_] = replicas
    ann = await api.account()
    old, new = await api.project(ann, a=SECRET * 30), await api.project(ann)
    await api.put_files(ann, old, {"a": "nothing"})
    assert SECRET in await kept(api)
    assert (await api.call("DELETE", f"/projects/{old}", ann)).status_code == 204
    assert await write(api, ann, new, 600) == DONE
    assert SECRET not in await kept(api)
