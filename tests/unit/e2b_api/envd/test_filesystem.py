"""`filesystem.Filesystem` over plain files."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from sandyard.e2b_api.envd.filesystem import FilesystemService, NotAFolderError
from sandyard.e2b_api.envd.machine import UserSession
from sandyard.e2b_api.errors import FolderExistsError
from sandyard.runtime.errors import FileMissingError


@pytest.fixture
def files() -> FilesystemService:
    return FilesystemService()


async def test_a_file_is_described(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    (tmp_path / "a").write_text("four")
    (tmp_path / "a").chmod(0o640)
    entry = (await files.stat(session, {"path": "a"}))["entry"]
    assert (entry["name"], entry["path"], entry["type"]) == (
        *("a", str(tmp_path / "a")),
        "FILE_TYPE_FILE",
    )
    assert (entry["size"], entry["mode"], entry["permissions"]) == ("4", 0o640, "-rw-r-----")
    assert entry["modifiedTime"].endswith("Z")


async def test_a_link_has_the_type_of_its_target(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    for name, target in {"good": "folder", "broken": "missing", "loop": "loop"}.items():
        (tmp_path / name).symlink_to(target)
    shown: dict[str, Any] = {}
    for name in ("good", "broken", "loop"):
        shown[name] = (await files.stat(session, {"path": name}))["entry"]
    assert shown["good"]["type"] == "FILE_TYPE_DIRECTORY"
    assert shown["good"]["symlinkTarget"] == str(tmp_path / "folder")
    assert shown["good"]["permissions"].startswith("L")
    assert {shown[name]["type"] for name in ("broken", "loop")} == {"FILE_TYPE_UNSPECIFIED"}


async def test_folders_are_made_once(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    made = await files.make_dir(session, {"path": "a/b"})
    assert made["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    with pytest.raises(FolderExistsError):
        await files.make_dir(session, {"path": "a/b"})
    (tmp_path / "file").touch()
    with pytest.raises(NotAFolderError):
        await files.make_dir(session, {"path": "file"})


async def test_a_list_shows_the_paths_that_were_asked_for(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "file").touch()
    (tmp_path / "link").symlink_to("deep")
    listed = await files.list_dir(session, {"path": "link", "depth": 2})
    home = str(tmp_path)
    assert [each["path"] for each in listed["entries"]] == [
        f"{home}/link/er",
        f"{home}/link/er/file",
    ]
    with pytest.raises(NotAFolderError):
        await files.list_dir(session, {"path": "deep/er/file"})
    with pytest.raises(FileMissingError):
        await files.list_dir(session, {"path": "missing"})


async def test_moves_make_folders_and_removals_may_repeat(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    (tmp_path / "a").touch()
    moved = await files.move(session, {"source": "a", "destination": "new/a"})
    assert moved["entry"]["path"] == str(tmp_path / "new" / "a")
    for _ in range(2):
        assert await files.remove(session, {"path": "new"}) == {}
    assert not (tmp_path / "new").exists()
    with pytest.raises(FileMissingError):
        await files.move(session, {"source": "a", "destination": "b"})


async def test_a_watch_reports_changes_with_their_entries(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    events: Any = files.watch_dir(session, {"path": ".", "includeEntry": True})
    async with aclosing(events), asyncio.timeout(30):
        assert await anext(events) == {"start": {}}
        (tmp_path / "new").write_text("1")
        created = (await anext(events))["filesystem"]
        assert (created["name"], created["type"]) == ("new", "EVENT_TYPE_CREATE")
        assert created["entry"]["path"] == str(tmp_path / "new")


async def test_only_folders_are_watched(
    session: UserSession, files: FilesystemService, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotAFolderError):
        await files.create_watcher(session, {"path": "file"})
    with pytest.raises(FileMissingError):
        await files.create_watcher(session, {"path": "missing"})
