"""A bucket of S3, or of a service with its API, as an object store.

The AWS client is imported where it is used. `AWS_ENDPOINT_URL`, the region and the credentials are
read as boto3 does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sandyard.runtime.store.errors import StoreUnavailableError
from sandyard.runtime.store.hashing import sha256_of
from sandyard.runtime.store.ports import StoredObject

_PART_BYTES = 8 << 20
_PARALLEL_PARTS = 4
_MISSING = frozenset({"404", "NoSuchKey", "NotFound"})


class S3Objects:
    def __init__(self, url: str, *, timeout_sec: float = 30) -> None:
        """`url` is `s3://bucket/prefix`. `timeout_sec` is for each part."""
        address = urlsplit(url)
        self.address = url
        self._bucket = address.netloc
        self._prefix = f"{address.path.strip('/')}/".lstrip("/")
        self._timeout_sec = timeout_sec

    def initialise(self) -> None:
        with self._translated():
            self._client.head_bucket(Bucket=self._bucket)

    def put(self, key: str, source: Path | None = None) -> None:
        named = {"Bucket": self._bucket, "Key": self._prefix + key}
        with self._translated():
            if source is None:
                self._client.put_object(**named, Body=b"")
                return
            # S3 compares the checksum of each part with what arrived.
            checked = {"ChecksumAlgorithm": "SHA256"}
            self._client.upload_file(str(source), **named, ExtraArgs=checked, Config=self._parts)

    def put_named(self, source: Path, key_of: Callable[[str], str | None]) -> None:
        if (key := key_of(sha256_of(source))) is not None:
            self.put(key, source)

    def get(self, key: str, to: Path) -> str | None:
        with self._translated():
            if self.find(key) is None:
                return None
            self._client.download_file(
                self._bucket, self._prefix + key, str(to), Config=self._parts
            )
        return sha256_of(to)

    def find(self, key: str) -> StoredObject | None:
        from botocore.exceptions import ClientError

        with self._translated():
            try:
                head = self._client.head_object(Bucket=self._bucket, Key=self._prefix + key)
            except ClientError as error:
                if error.response["Error"]["Code"] in _MISSING and self._has_bucket():
                    return None
                raise
        return StoredObject(key, head["ContentLength"], head["LastModified"].timestamp())

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for page in self._pages("list_objects_v2", prefix):
            for each in page.get("Contents", ()):
                key = each["Key"].removeprefix(self._prefix)
                yield StoredObject(key, each["Size"], each["LastModified"].timestamp())

    def delete(self, key: str) -> None:
        with self._translated():
            self._client.delete_object(Bucket=self._bucket, Key=self._prefix + key)

    def remove_drafts(self, *, before_at: float) -> None:
        for page in self._pages("list_multipart_uploads", ""):
            for each in page.get("Uploads", ()):
                if each["Initiated"].timestamp() < before_at:
                    named = {"Key": each["Key"], "UploadId": each["UploadId"]}
                    with self._translated():
                        self._client.abort_multipart_upload(Bucket=self._bucket, **named)

    def _pages(self, call: str, prefix: str) -> Iterator[Any]:
        with self._translated():
            pages = self._client.get_paginator(call)
            yield from pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)

    def _has_bucket(self) -> bool:
        """The response to HEAD says 404 for both."""
        self._client.head_bucket(Bucket=self._bucket)
        return True

    @cached_property
    def _client(self) -> Any:
        import boto3
        from botocore.config import Config

        config = Config(
            connect_timeout=5,
            read_timeout=self._timeout_sec,
            retries={"mode": "standard", "total_max_attempts": 3},
        )
        session: Any = boto3.Session()
        return session.client("s3", config=config)

    @cached_property
    def _parts(self) -> Any:
        from boto3.s3.transfer import TransferConfig

        return TransferConfig(
            multipart_threshold=_PART_BYTES,
            multipart_chunksize=_PART_BYTES,
            max_concurrency=_PARALLEL_PARTS,
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError, OSError) as error:
            raise StoreUnavailableError(f"{self.address}: {error}"[:300]) from error
