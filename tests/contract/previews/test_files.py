"""The files of projects: paths, contents, limits, and what becomes of them."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa

from sandyard.previews.jobs import EndReport
from tests.support.platform.in_process import code_of, counted_statements
from tests.support.previews.in_process import PreviewApi

SECRET = "what-nobody-may-read-any-more"


async def test_half_a_character_is_no_text(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller)
    body = b'{"files":[{"path":"a","content":"\\ud83d"}]}'
    headers = {"Content-Type": "application/json"}
    refused = await api.call(
        "PUT", f"/projects/{project}/files", caller, content=body, headers=headers
    )
    assert code_of(refused) == (400, "INVALID_FILE_ENCODING")


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "a//b",
        "./a",
        "a/.",
        "a\\b",
        "a\0b",
        "a\nb",
        "x" * 513,
        "é" * 101,
    ],
)
async def test_a_path_that_leaves_the_project_is_refused(api: PreviewApi, path: str) -> None:
    caller = await api.account()
    project = await api.project(caller)
    for body in (
        {"files": [{"path": path, "content": "x"}]},
        {"deleted": [path]},
    ):
        answer = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
        assert answer.status_code == 400
    assert (await api.get(f"/projects/{project}/files", caller))["files"] == []


async def test_files_of_any_bytes_come_back(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller, **{"a.txt": "ä"})
    body = {"files": [{"path": "b.bin", "content": "AP/+", "encoding": "base64"}]}
    answer = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
    assert answer.json()["version"] == 2
    found = await api.get(f"/projects/{project}/files", caller)
    assert [(f["path"], f["encoding"], f["content"], f["size"]) for f in found["files"]] == [
        ("a.txt", "utf-8", "ä", 2),
        ("b.bin", "base64", "AP/+", 3),
    ]
    whole = {"files": [{"path": "c", "content": "c"}], "replace": True}
    await api.call("PUT", f"/projects/{project}/files", caller, json=whole)
    found = await api.get(f"/projects/{project}/files", caller)
    assert [file["path"] for file in found["files"]] == ["c"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"files": [{"path": "a", "content": "!", "encoding": "base64"}]}, "INVALID_FILE_ENCODING"),
        (
            {"files": [{"path": "a", "content": "1"}, {"path": "a", "content": "2"}]},
            "FILE_CONFLICT",
        ),
        ({"files": [{"path": "a", "content": "1"}], "deleted": ["a"]}, "FILE_CONFLICT"),
        (
            {"files": [{"path": "a", "content": "1"}, {"path": "a/b", "content": "2"}]},
            "FILE_CONFLICT",
        ),
        (
            {"files": [{"path": f"f{n}", "content": ""} for n in range(5001)]},
            "FILES_LIMIT_EXCEEDED",
        ),
        ({"files": [{"path": "a", "content": 5}]}, "INVALID_REQUEST"),
        ({"more": 1}, "INVALID_REQUEST"),
    ],
)
async def test_a_bad_change_set_changes_nothing(
    api: PreviewApi, body: dict[str, Any], code: str
) -> None:
    caller = await api.account()
    project = await api.project(caller)
    answer = await api.call("PUT", f"/projects/{project}/files", caller, json=body)
    assert code_of(answer) == (400, code)
    assert (await api.get(f"/projects/{project}/files", caller))["version"] == 0


async def test_the_files_of_a_deleted_project_are_removed(api: PreviewApi) -> None:
    caller = await api.account()
    deleted, kept = [await api.project(caller, **{"index.html": str(n)}) for n in range(2)]
    assert (await api.call("DELETE", f"/projects/{deleted}", caller)).status_code == 204
    jobs = {job.name: job for job in api.previews.schedule}
    looked = await api.previews.runner.run(jobs["end-previews"])
    assert looked == EndReport(), "none of them runs"
    removed = await api.previews.runner.run(jobs["deleted-projects"])
    assert removed == EndReport(ended=0, removed=1)
    count = sa.text("SELECT project_id FROM previews.project_files")
    rows = await api.previews.database.read(lambda connection: connection.execute(count).all())
    assert [row.project_id for row in rows] == [kept]
    with counted_statements() as statements:
        assert await api.previews.runner.run(jobs["deleted-projects"]) == EndReport()
    assert not [each for each in statements if "previews.previews" in each], "nobody's are read"


async def test_what_a_deleted_project_held_is_in_no_file_of_the_data_dir(api: PreviewApi) -> None:
    caller = await api.account()
    deleted = await api.project(caller, small=SECRET, large=SECRET * 1000)
    assert (await api.call("DELETE", f"/projects/{deleted}", caller)).status_code == 204
    [job] = [job for job in api.previews.schedule if job.name == "deleted-projects"]
    await api.previews.runner.run(job)
    files = [each for each in api.data_dir.rglob("*") if each.is_file()]
    assert not [each.name for each in files if SECRET.encode() in each.read_bytes()]


async def test_of_many_change_sets_at_once_each_makes_a_version(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller)
    versions = await asyncio.gather(
        *(api.put_files(caller, project, {f"f{n}": str(n)}) for n in range(10))
    )
    assert sorted(versions) == list(range(1, 11))
    found = await api.get(f"/projects/{project}/files", caller)
    assert (found["version"], len(found["files"])) == (10, 10)


async def test_a_hundred_changes_at_once_are_all_made(api: PreviewApi) -> None:
    caller = await api.account()
    project = await api.project(caller)
    puts = (api.put_files(caller, project, {f"{n}.txt": "x"}) for n in range(100))
    assert sorted(await asyncio.gather(*puts)) == list(range(1, 101))
    found = await api.get(f"/projects/{project}/files", caller)
    assert {file["path"] for file in found["files"]} == {f"{n}.txt" for n in range(100)}
