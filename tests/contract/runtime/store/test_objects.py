"""What every object store promises."""

import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest

from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.ports import ObjectStore


def test_an_object_is_stored_found_read_listed_and_deleted(
    objects: ObjectStore, tmp_path: Path
) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(9 << 20))  # two parts
    before = time.time() - 2
    objects.put("a/b/large", source)
    objects.put("a/c")
    found = objects.find("a/b/large")
    assert found is not None
    assert (found.key, found.size_bytes) == ("a/b/large", 9 << 20)
    assert before < found.modified_at < time.time() + 2
    assert objects.get("a/b/large", copy)
    assert copy.read_bytes() == source.read_bytes()
    assert [each.key for each in objects.list("a/")] == ["a/b/large", "a/c"]
    assert [each.key for each in objects.list("a/b/l")] == ["a/b/large"]
    for _ in range(2):
        objects.delete("a/b/large")
    assert objects.find("a/b/large") is None
    assert not objects.get("a/b/large", copy)
    assert [each.key for each in objects.list("")][-1:] != ["a/b/large"]


def test_an_object_is_replaced(objects: ObjectStore, tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    for content in (b"first", b"second"):
        source.write_bytes(content)
        objects.put("a/one", source)
    assert objects.get("a/one", copy)
    assert copy.read_bytes() == b"second"
    assert len(list(objects.list("a/"))) == 1


def test_a_list_goes_through_all_pages(objects: ObjectStore) -> None:
    wanted = [f"many/{number:04}" for number in range(30)]
    for key in wanted:
        objects.put(key)
    assert [each.key for each in objects.list("many/")] == wanted


def test_the_checksum_is_that_of_the_bytes_that_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, source, copy = FolderObjects(tmp_path / "store"), tmp_path / "one", tmp_path / "copy"
    objects.initialise()
    source.write_bytes(b"what was stored")
    objects.put("a/one", source)

    def damage(_: Any, to: Path) -> None:
        to.write_bytes(b"what was read")

    monkeypatch.setattr(shutil, "copyfile", damage)
    assert objects.get("a/one", copy) == hashlib.sha256(b"what was read").hexdigest()


def test_of_what_is_already_there_nothing_more_is_written_once_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, source = FolderObjects(tmp_path / "store"), tmp_path / "one"
    objects.initialise()
    source.write_bytes(b"stored")
    written: list[int] = []
    submit, unlink = ThreadPoolExecutor.submit, Path.unlink

    def at_once(*arguments: Any) -> Any:
        submitted = submit(*arguments)
        wait([submitted])
        return submitted

    def measured(path: Path, **options: Any) -> None:
        written.extend([path.stat().st_size] if path.exists() else [])
        unlink(path, **options)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", at_once)
    monkeypatch.setattr(Path, "unlink", measured)
    objects.put_named(source, lambda _: None)
    assert written == [0]
    objects.put_named(source, lambda sha256: f"a/{sha256}")
    assert [each.size_bytes for each in objects.list("a/")] == [6]
