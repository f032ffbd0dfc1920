"""Versions of a project's files: every change set makes one; they are read, compared, restored."""

import io
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.previews.archives import pack, unpack
from sandyard.previews.files import FileLimits, ProjectFile
from sandyard.previews.stores.tables import file_versions, past_contents, past_files
from tests.support.e2b.double import E2bDouble
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, preview_api

KEPT = 4
LIMITS = FileLimits(files=5000, total_bytes=10**7)


@pytest.fixture
async def api(
    database_url: str | None, tmp_path: Path, double: E2bDouble
) -> AsyncIterator[PreviewApi]:
    async with preview_api(database_url, tmp_path, double, preview_keep_versions=KEPT) as api:
        yield api


async def contents(
    api: PreviewApi, caller: Caller, project: str, version: int | None = None, **chosen: str
) -> dict[str, str]:
    at = {} if version is None else {"version": version}
    answer = await api.call("GET", f"/projects/{project}/files", caller, params={**at, **chosen})
    found = answer.json()
    assert version in (None, found["version"])
    return {each["path"]: each["content"] for each in found["files"]}


async def versions(api: PreviewApi, caller: Caller, project: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await api.get(f"/projects/{project}/versions", caller))[
        "versions"
    ]
    return found


async def count_stored(api: PreviewApi, table: sa.Table) -> int:
    statement = sa.select(sa.func.count()).select_from(table)
    return await api.previews.database.read(
        lambda connection: int(connection.execute(statement).scalar_one())
    )


async def test_every_change_set_is_a_version_with_author_time_and_message(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, **{"a.txt": "one"})
    body = {"files": [{"path": "b.txt", "content": "twice"}], "message": "More"}
    await api.call("PUT", f"/projects/{project}/files", ann, json=body)
    newer, older = await versions(api, ann, project)
    assert (newer["version"], newer["message"], newer["files"], newer["size_bytes"]) == (
        *(2, "More", 2),
        8,
    )
    assert newer["author"] == older["author"] == f"account:{ann.account_id}"
    assert newer["created_at"] >= older["created_at"]
    await api.call("PUT", f"/projects/{project}/files", ann, json=body)
    assert len(await versions(api, ann, project)) == 2, "what changes nothing is no version"


async def test_the_files_of_a_version_are_those_that_it_had(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1", b="1", c="1")
    await api.put_files(ann, project, {"a": "2", "d": "2"}, "b")
    await api.put_files(ann, project, {"a": "1", "b": "3"})
    expected = [
        {"a": "1", "b": "1", "c": "1"},
        {"a": "2", "c": "1", "d": "2"},
        {"a": "1", "b": "3", "c": "1", "d": "2"},
    ]
    for number, files in enumerate(expected, start=1):
        assert await contents(api, ann, project, number) == files
        only = await contents(api, ann, project, number, path="a")
        assert only == {"a": files["a"]}
    assert await contents(api, ann, project) == expected[-1]


async def test_versions_are_compared_by_content(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1", b="1", c="1")
    await api.put_files(ann, project, {"a": "22"}, "b")
    await api.put_files(ann, project, {"a": "1", "d": "3"})

    async def compare(version: int, **since: int) -> list[tuple[str, str, int | None, int | None]]:
        found = await api.get(f"/projects/{project}/versions/{version}/changes", ann, **since)
        return [tuple(each.values()) for each in found["changes"]]

    assert await compare(2) == [("a", "changed", 1, 2), ("b", "removed", 1, None)]
    assert await compare(3, since=1) == [("b", "removed", 1, None), ("d", "added", None, 1)]
    assert await compare(1, since=3) == [("b", "added", None, 1), ("d", "removed", 1, None)]
    assert len(await compare(1)) == 3, "before the first there was nothing"


async def test_a_restored_version_is_a_new_one_that_a_sync_shows(
    api: PreviewApi, double: E2bDouble
) -> None:
    ann = await api.account()
    project = await api.project(ann, a="good", kept="k")
    await api.sync(ann, project)
    await api.put_files(ann, project, {"a": "bad", "more": "m"})
    await api.sync(ann, project)
    restored = await api.post(f"/projects/{project}/versions/1/restore", ann, {})
    assert restored["version"] == 3
    assert await contents(api, ann, project) == {"a": "good", "kept": "k"}
    newest, *_ = await versions(api, ann, project)
    assert newest["message"] == "Restored version 1"
    assert (await api.sync(ann, project))["data"]["outcome"] == "updated"
    [sandbox] = double.boxes
    shown = {path.rpartition("/")[2]: content for path, content in sandbox.files.items()}
    assert (shown["a"], "more" in shown) == (b"good", False)


async def test_only_the_last_versions_are_kept_and_contents_once(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, stays="for ever")
    for number in range(KEPT + 2):
        await api.put_files(ann, project, {"a": "even" if number % 2 else "odd", "b": str(number)})
    assert [each["version"] for each in await versions(api, ann, project)] == [7, 6, 5, 4]
    assert (await contents(api, ann, project, 4))["stays"] == "for ever"
    for path in ("files?version=3", "versions/3/changes", "versions/4/changes", "files?version=8"):
        refused = await api.call("GET", f"/projects/{project}/{path}", ann)
        assert code_of(refused) == (404, "VERSION_NOT_FOUND")
    refused = await api.call("POST", f"/projects/{project}/versions/3/restore", ann, json={})
    assert code_of(refused) == (404, "VERSION_NOT_FOUND")
    assert await count_stored(api, past_files) == 6
    assert await count_stored(api, past_contents) == 5, "odd and even, and three of b"


async def test_removed_versions_are_gone_and_the_files_stay(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1")
    for number in range(3):
        await api.put_files(ann, project, {"a": f"{number} more"})
    removed = await api.call("DELETE", f"/projects/{project}/versions?keep=2", ann)
    assert removed.status_code == 204
    assert [each["version"] for each in await versions(api, ann, project)] == [4, 3]
    assert await contents(api, ann, project, 3) == {"a": "1 more"}
    assert await count_stored(api, past_contents) == 1
    assert await contents(api, ann, project) == {"a": "2 more"}


async def test_a_version_that_another_release_made_ends_what_can_be_read(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1")
    await api.put_files(ann, project, {"a": "2"})
    unknown = file_versions.delete().where(file_versions.c.version == 2)
    await api.previews.database.write(partial(_execute, statement=unknown))
    assert await versions(api, ann, project) == []
    await api.put_files(ann, project, {"a": "3"})
    assert [each["version"] for each in await versions(api, ann, project)] == [3]
    assert await count_stored(api, past_files) == 0


def _execute(connection: sa.Connection, statement: sa.Delete) -> None:
    connection.execute(statement)


async def test_versions_of_other_accounts_are_not_found(api: PreviewApi) -> None:
    ann, bob = await api.account(), await api.account()
    project = await api.project(ann, a="1")
    for method, path in (
        ("GET", "versions"),
        ("GET", "versions/1/changes"),
        ("POST", "versions/1/restore"),
        ("DELETE", "versions"),
    ):
        body: dict[str, str] | None = {} if method == "POST" else None
        refused = await api.call(method, f"/projects/{project}/{path}", bob, json=body)
        assert refused.status_code == 404, path


async def test_an_archived_project_is_read_and_not_restored(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1")
    await api.post(f"/projects/{project}/archive", ann)
    assert len(await versions(api, ann, project)) == 1
    refused = await api.call("POST", f"/projects/{project}/versions/1/restore", ann, json={})
    assert refused.status_code == 409


async def test_all_files_go_up_and_down_as_a_tar(api: PreviewApi) -> None:
    ann = await api.account()
    project = await api.project(ann, old="gone", a="1")
    path = f"/projects/{project}/files/tar"
    packed = pack(
        [ProjectFile("a", b"1", 1), *(ProjectFile(f"b/{n}", b"\xff" * n, 1) for n in range(600))]
    )
    sent = await api.call(
        "PUT", path, ann, content=packed, params={"message": "All", "expected_version": 1}
    )
    assert (sent.status_code, sent.json()["version"]) == (200, 2)
    newest, _ = await versions(api, ann, project)
    assert (newest["message"], newest["files"]) == ("All", 601)
    down = await api.call("GET", path, ann)
    assert unpack(io.BytesIO(down.content), LIMITS) == unpack(io.BytesIO(packed), LIMITS)
    earlier = await api.call("GET", path, ann, params={"version": 1})
    assert unpack(io.BytesIO(earlier.content), LIMITS) == {"a": b"1", "old": b"gone"}
    late = await api.call("PUT", path, ann, content=packed, params={"expected_version": 1})
    assert code_of(late) == (409, "FILES_VERSION_CONFLICT")


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"x" * 600, "INVALID_FILES_ARCHIVE"),
        (pack([ProjectFile("../a", b"", 1)]), "UNSAFE_FILE_PATH"),
    ],
)
async def test_a_bad_archive_changes_nothing(api: PreviewApi, content: bytes, code: str) -> None:
    ann = await api.account()
    project = await api.project(ann, a="1")
    refused = await api.call("PUT", f"/projects/{project}/files/tar", ann, content=content)
    assert code_of(refused) == (400, code)
    assert await contents(api, ann, project) == {"a": "1"}
