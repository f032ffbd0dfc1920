"""The store of files beside plain copies: a folder beside `cp`, and S3 beside bare boto3."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

from benchmarks.report import Figure, Measured, Say
from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from sandyard.runtime.store.ports import ObjectStore
from sandyard.runtime.store.s3 import S3Objects
from tests.support.storage.engines import AWS_ENVIRONMENT

_MEGABYTES = 100
_ROUNDS = 5
_MOST = 1.43
"""A plain copy is 0.7 of it."""


def measure(folder: Path, say: Say) -> Measured:
    """Files that are compressed already, as a stop packs them."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    chosen = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update({**AWS_ENVIRONMENT, **chosen})
    try:
        client: Any = boto3.client("s3")
        client.create_bucket(Bucket="files")
        rows = [
            *_compare(folder, say, "a folder", FolderObjects(folder / "share"), _copy, _copy),
            *_compare(
                *(folder, say, "S3", S3Objects("s3://files/store")),
                lambda source, _: client.upload_file(str(source), "files", "plain"),
                lambda _, to: client.download_file("files", "plain", str(to)),
            ),
        ]
    finally:
        server.stop()
    return Measured(rows, rows=f"{_MEGABYTES} MB")


def _compare(
    folder: Path,
    say: Say,
    name: str,
    objects: ObjectStore,
    plain_up: Callable[[Path, Path], object],
    plain_down: Callable[[Path, Path], object],
) -> list[Figure]:
    """In turn, so that both meet the same load."""
    layers = Layers(objects, remembered=folder / "remembered")
    source, copy, plain = folder / "source", folder / "copy", folder / "plain"
    up, plain_ups, down, plain_downs = [list[float]() for _ in range(4)]
    for number in map(str, range(_ROUNDS)):
        say(f"store: {_MEGABYTES} MB to {name} and back, {_ROUNDS} rounds")
        source.write_bytes(b"\x1f\x8b" + os.urandom(_MEGABYTES << 20))
        up.append(_timed(lambda put: asyncio.run(put), layers.put("archives", number, source)))
        plain_ups.append(_timed(plain_up, source, plain))
        down.append(_timed(lambda get: asyncio.run(get), layers.fetch("archives", number, copy)))
        plain_downs.append(_timed(plain_down, plain, folder / "plain-copy"))
    figures = []
    for way, times, plains in (("up", up, plain_ups), ("down", down, plain_downs)):
        label = f"store {way} ÷ plain, {name} ({_MEGABYTES / median(times):.0f} MB/s)"
        figures.append(Figure.at_most(label, median(times) / median(plains), _MOST))
    return figures


def _timed(work: Callable[..., object], *arguments: Any) -> float:
    begun_at = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - begun_at


def _copy(source: Path, to: Path) -> None:
    """Durable, as the store is."""
    shutil.copyfile(source, to)
    with to.open("rb+") as file:
        os.fsync(file.fileno())
