"""Object stores: a folder, and S3 as `moto` has it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from sandyard.runtime.store.folder import FolderObjects
from sandyard.runtime.store.layers import Layers
from sandyard.runtime.store.ports import ObjectStore
from sandyard.runtime.store.s3 import S3Objects
from tests.support.storage.engines import AWS_ENVIRONMENT

BUCKET = "files"
MakeLayers = Callable[..., Layers]


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty bucket."""
    named = {"AWS_ENDPOINT_URL": s3_url, "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**AWS_ENVIRONMENT, **named}.items():
        monkeypatch.setenv(name, value)
    bucket: Any = boto3.resource("s3").Bucket(BUCKET)
    bucket.create()
    bucket.objects.all().delete()
    return f"s3://{BUCKET}/some/prefix"


@pytest.fixture(params=["folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        folder = FolderObjects(tmp_path / "store")
        folder.initialise()
        return folder
    return S3Objects(request.getfixturevalue("s3"))


@pytest.fixture
def layers(objects: ObjectStore, tmp_path: Path) -> Layers:
    return Layers(objects, remembered=tmp_path / "remembered", grace_sec=60)
