"""Output of a command: a file, standard output, or an object in S3."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, cast
from urllib.parse import urlsplit

import click

Write = Callable[[bytes], object]


@contextmanager
def open_output(name: str) -> Iterator[Write]:
    """The output is complete when the block ends; a file or object that was interrupted is
    removed."""
    if name == "-":
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
    elif name.startswith("s3://"):
        with _object(name) as write:
            yield write
    else:
        with _file(Path(name)) as write:
            yield write


@contextmanager
def _file(path: Path) -> Iterator[Write]:
    draft = path.with_name(f"{path.name}.part")
    try:
        with draft.open("wb") as file:
            draft.chmod(0o600)
            yield file.write
        draft.replace(path)
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def _object(url: str) -> Iterator[Write]:
    """A multipart upload that reads from a pipe, so that at most one part is in memory."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError, ClientError
    except ModuleNotFoundError as error:
        raise click.ClickException("s3:// needs `pip install sandyard[aws]`.") from error
    address = urlsplit(url)
    key = address.path.lstrip("/")
    if not address.netloc or not key:
        raise click.UsageError(f"{url}: must be s3://BUCKET/KEY")
    source = _Pipe()
    failures: list[BaseException] = []

    def upload() -> None:
        try:
            with source.reader:
                boto3.client("s3").upload_fileobj(cast("IO[bytes]", source), address.netloc, key)
        except (BotoCoreError, ClientError, OSError) as error:
            failures.append(error)

    thread = threading.Thread(target=upload)
    thread.start()
    try:
        with source.writer:
            yield source.writer.write
    except BrokenPipeError:
        pass  # the upload has ended, and raises the reason
    except BaseException:
        source.broke_off = True
        raise
    finally:
        source.is_complete.set()
        thread.join()
    if failures:
        raise click.ClickException(f"{url}: {failures[0]}") from failures[0]


class _Pipe:
    """A pipe whose reader gets no end of file if the writer fails, so that partial output is never
    taken for the whole."""

    def __init__(self) -> None:
        reader, writer = os.pipe()
        self.reader = os.fdopen(reader, "rb")
        self.writer = os.fdopen(writer, "wb")
        self.broke_off = False
        self.is_complete = threading.Event()

    def read(self, size: int = -1) -> bytes:
        data = self.reader.read(size)
        if size < 0 or len(data) < size:
            self.is_complete.wait()
            if self.broke_off:
                raise OSError("it stopped before its end")
        return data
