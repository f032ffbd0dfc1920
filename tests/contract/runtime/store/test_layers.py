"""Files in every object store: stored once, checked, and collected when nothing refers to them."""

import asyncio
import gzip
import os
import time
from pathlib import Path

import pytest

from sandyard.runtime.store.errors import ObjectDamagedError, StoringError
from sandyard.runtime.store.layers import Layers, ReadOnlyLayers
from sandyard.runtime.store.model import OBJECTS
from sandyard.runtime.store.ports import ObjectStore

GRACE_SEC = 60


def object_keys(objects: ObjectStore) -> list[str]:
    return [each.key for each in objects.list(OBJECTS)]


async def test_a_file_comes_back_as_it_was(layers: Layers, tmp_path: Path) -> None:
    contents = {"plain": b"text " * 10_000, "packed": gzip.compress(os.urandom(2000)), "none": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        await layers.put("archives", name, tmp_path / name)
    listed = {each.id: each.size_bytes for each in await layers.list_all("archives")}
    assert listed == {name: len(content) for name, content in contents.items()}
    assert await layers.list_all("snapshots") == []
    for name, content in contents.items():
        assert await layers.fetch("archives", name, tmp_path / "cache" / name)
        assert (tmp_path / "cache" / name).read_bytes() == content
    assert not await layers.fetch("snapshots", "plain", tmp_path / "no")
    assert [path.name for path in tmp_path.glob("*no*")] == ["none"]


async def test_plain_text_is_compressed(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "plain").write_bytes(b"text " * 100_000)
    await layers.put("archives", "one", tmp_path / "plain")
    assert [each.size_bytes < 5000 for each in objects.list(OBJECTS)] == [True]


async def test_the_same_content_is_stored_once(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(b"the same")
        await layers.put("archives", name, tmp_path / name)
    await layers.put("archives", "one", tmp_path / "one")
    assert len(object_keys(objects)) == 1
    assert [each.id for each in await layers.list_all("archives")] == ["one", "two"]


async def test_a_file_of_the_same_id_replaces_the_other(layers: Layers, tmp_path: Path) -> None:
    for content in (b"first", b"second one"):
        (tmp_path / "file").write_bytes(content)
        await layers.put("snapshots", "one", tmp_path / "file")
    found = await layers.find("snapshots", "one")
    assert found is not None
    assert found.size_bytes == len(b"second one")
    assert await layers.fetch("snapshots", "one", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"second one"


async def test_a_damaged_object_is_never_used(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(1000))
    await layers.put("snapshots", "one", tmp_path / "file")
    (key,) = object_keys(objects)
    (tmp_path / "other").write_bytes(b"not what was stored")
    objects.put(key, tmp_path / "other")
    with pytest.raises(ObjectDamagedError) as damaged:
        await layers.fetch("snapshots", "one", tmp_path / "cache" / "copy")
    assert "another checksum" in (damaged.value.reason or "")
    objects.delete(key)
    with pytest.raises(ObjectDamagedError) as missing:
        await layers.fetch("snapshots", "one", tmp_path / "cache" / "copy")
    assert "is missing" in (missing.value.reason or "")
    assert list((tmp_path / "cache").iterdir()) == []


async def test_what_nothing_refers_to_is_deleted_after_the_grace(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    for name in ("kept", "dropped"):
        (tmp_path / name).write_text(name)
        await layers.put("archives", name, tmp_path / name)
    await layers.delete("archives", "dropped")
    now = time.time()
    assert await layers.collect(now=now) == 0
    assert await layers.collect(now=now + GRACE_SEC - 5) == 0
    assert len(object_keys(objects)) == 2
    assert await layers.collect(now=now + GRACE_SEC + 5) == 1
    assert len(object_keys(objects)) == 1
    assert await layers.fetch("archives", "kept", tmp_path / "copy")
    assert await layers.collect(now=now + 10 * GRACE_SEC) == 0


async def test_content_that_is_about_to_be_deleted_is_stored_anew(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    """The collector may have decided to delete the old object: its name is not used again."""
    (tmp_path / "file").write_bytes(b"content")
    await layers.put("archives", "one", tmp_path / "file")
    await layers.delete("archives", "one")
    now = time.time()
    await layers.collect(now=now)
    await layers.put("archives", "two", tmp_path / "file")
    assert len(object_keys(objects)) == 2
    assert await layers.collect(now=now + GRACE_SEC + 5) == 1
    assert await layers.fetch("archives", "two", tmp_path / "copy")


async def test_a_reference_within_the_grace_keeps_a_marked_object(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    """As when the collector runs between an upload and its reference."""
    (tmp_path / "file").write_bytes(b"content")
    await layers.put("archives", "one", tmp_path / "file")
    (reference,) = [each.key for each in objects.list("references/")]
    objects.delete(reference)
    now = time.time()
    await layers.collect(now=now)
    objects.put(reference)
    assert await layers.collect(now=now + 2 * GRACE_SEC) == 0
    assert await layers.fetch("archives", "one", tmp_path / "copy")


async def test_concurrent_callers_share_one_upload(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(os.urandom(1 << 20))
    await asyncio.gather(*(layers.put("archives", "one", tmp_path / "file") for _ in range(5)))
    assert len(object_keys(objects)) == 1


async def test_who_does_not_wait_finds_it_stored_later(layers: Layers, tmp_path: Path) -> None:
    """Its upload is not begun anew, for which the file would have to be there."""
    (tmp_path / "file").write_bytes(os.urandom(1 << 20))
    with pytest.raises(StoringError):
        await layers.put("archives", "one", tmp_path / "file", timeout_sec=0)
    async with asyncio.timeout(30):
        while await layers.find("archives", "one") is None:
            await asyncio.sleep(0.01)
    (tmp_path / "file").unlink()
    await asyncio.sleep(0.1)
    await layers.put("archives", "one", tmp_path / "file", timeout_sec=30)


async def test_a_copy_of_a_data_dir_only_reads(
    layers: Layers, objects: ObjectStore, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"content")
    await layers.put("archives", "one", tmp_path / "file")
    copy = ReadOnlyLayers(objects, remembered=tmp_path / "other", grace_sec=0)
    await copy.put("archives", "two", tmp_path / "file")
    await copy.delete("archives", "one")
    await copy.collect(now=time.time() + 1000)
    assert [each.id for each in await copy.list_all("archives")] == ["one"]
    assert await copy.fetch("archives", "one", tmp_path / "copy")


@pytest.mark.parametrize("unknown", ["", "..", "a/b", ".hidden", "no"])
async def test_an_unknown_id_is_not_found(layers: Layers, tmp_path: Path, unknown: str) -> None:
    assert await layers.find("snapshots", unknown) is None
    assert not await layers.fetch("snapshots", unknown, tmp_path / "copy")
    await layers.delete("snapshots", unknown)
