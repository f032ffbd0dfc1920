"""A store that is away, slow, full or cut off: an outage, never a missing file, and no half one."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sandyard.kit.free_ports import free_port
from sandyard.runtime.store.errors import StoreUnavailableError, StoringError
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from sandyard.runtime.store.model import OBJECTS
from sandyard.runtime.store.s3 import S3Objects
from tests.support.storage.disks import small_disk


def layers_of(objects: FolderObjects | S3Objects, tmp_path: Path) -> Layers:
    return Layers(objects, remembered=tmp_path / "remembered")


async def require_outage(layers: Layers, path: Path) -> None:
    """In every call that answers something."""
    for call in (
        layers.put("snapshots", "one", path),
        layers.fetch("snapshots", "one", path.with_name("copy")),
        layers.find("snapshots", "one"),
        layers.list_all("snapshots"),
        layers.collect(now=time.time()),
    ):
        with pytest.raises(StoreUnavailableError):
            await call
    assert not path.with_name("copy").exists()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "files" / "file"
    path.parent.mkdir()
    path.write_bytes(b"\x1f\x8b" + os.urandom(20 << 20))  # three parts, stored as they are
    return path


async def test_a_share_that_is_not_mounted_is_an_outage(tmp_path: Path, file: Path) -> None:
    share = tmp_path / "share"
    layers = layers_of(FolderObjects(share), tmp_path)
    await layers.put("snapshots", "one", file)
    share.rename(tmp_path / "elsewhere")
    share.mkdir()
    await require_outage(layers_of(FolderObjects(share), tmp_path), file)
    share.rmdir()
    await require_outage(layers_of(FolderObjects(share), tmp_path), file)
    (tmp_path / "elsewhere").rename(share)
    assert await layers.fetch("snapshots", "one", tmp_path / "copy")


async def test_a_full_disk_refuses_the_whole_file(tmp_path: Path, file: Path) -> None:
    with small_disk(tmp_path, megabytes=10) as disk:
        objects = FolderObjects(disk.path / "store")
        layers = layers_of(objects, tmp_path)
        with pytest.raises(StoreUnavailableError, match="store of files") as full:
            await layers.put("snapshots", "one", file)
        assert "No space left" in (full.value.reason or "")
        assert list(objects.list("")) == list(objects.list("sandyard-store"))
        assert await layers.find("snapshots", "one") is None
        assert file.exists()


async def test_a_bucket_that_is_missing_is_an_outage(s3: str, tmp_path: Path, file: Path) -> None:
    (tmp_path / "remembered").write_text("s3://no-such-bucket")
    await require_outage(layers_of(S3Objects("s3://no-such-bucket"), tmp_path), file)


async def test_nobody_listens(
    s3: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    await require_outage(layers_of(S3Objects(s3), tmp_path), file)


async def test_no_answer_in_time_and_an_upload_that_goes_on(
    s3: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        layers = layers_of(S3Objects(s3, timeout_sec=0.3), tmp_path)
        with pytest.raises(StoringError):
            await layers.put("snapshots", "one", file, timeout_sec=0.01)
        with pytest.raises(StoreUnavailableError) as failed:
            await layers.put("snapshots", "one", file)  # joins the same upload
    assert not isinstance(failed.value, StoringError)


async def test_after_a_failure_others_do_not_wait_for_theirs(tmp_path: Path, file: Path) -> None:
    objects = FolderObjects(tmp_path / "share")
    layers = layers_of(objects, tmp_path)
    (tmp_path / "remembered").write_text(objects.address)
    for given_id in ("one", "two"):
        with pytest.raises(StoreUnavailableError):
            await layers.put("snapshots", given_id, file)
        objects.initialise()  # "two" is refused though the store is back
    assert list(objects.list(OBJECTS)) == []


@pytest.mark.torture
async def test_a_torn_upload_leaves_nothing_and_is_repeated_as_a_whole(
    s3: str, s3_url: str, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cut_after(s3_url, sent_bytes=9 << 20) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        with pytest.raises(StoreUnavailableError):
            await layers_of(S3Objects(s3, timeout_sec=5), tmp_path).put("snapshots", "one", file)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    objects = S3Objects(s3)
    layers = layers_of(objects, tmp_path)
    assert list(objects.list("")) == []
    await layers.put("snapshots", "one", file)
    objects.remove_drafts(before_at=time.time() + 60)
    assert await layers.fetch("snapshots", "one", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == file.read_bytes()


@contextmanager
def cut_after(url: str, *, sent_bytes: int) -> Iterator[str]:
    """A relay to this URL that breaks all connections after so many bytes of requests, for good."""
    target = urlsplit(url)
    left = sent_bytes
    lock = threading.Lock()
    server = socket.create_server(("127.0.0.1", 0))

    def relay(source: socket.socket, to: socket.socket, *, counts: bool) -> None:
        nonlocal left
        try:
            while data := source.recv(1 << 16):
                with lock:
                    left -= len(data) if counts else 0
                    if left <= 0:
                        break
                to.sendall(data)
        except OSError:
            pass
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def accept() -> None:
        while True:
            try:
                client, _ = server.accept()
                beyond = socket.create_connection((target.hostname or "", target.port or 0))
            except OSError:
                return
            for ends, counts in (((client, beyond), True), ((beyond, client), False)):
                threading.Thread(
                    target=relay, args=ends, kwargs={"counts": counts}, daemon=True
                ).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        accepting.join()
