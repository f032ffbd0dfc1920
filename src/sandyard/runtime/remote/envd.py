"""The API of envd, the server inside a machine: files, processes, watches.

Messages are Connect's, as JSON; those of a stream have a header of five bytes.
"""

import base64
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from io import BytesIO
from secrets import token_hex
from typing import Any

from sandyard.kit.sizes import MESSAGE_BYTES
from sandyard.runtime.remote.errors import CallError, Trouble
from sandyard.runtime.remote.http import HttpCaller, error_of, parsed, parsing

PORT = 49983
"""envd's own port in every machine."""
_LAST = 2
_HEADER_BYTES = 5
_STREAM = {
    "Content-Type": "application/connect+json",
    "Connect-Protocol-Version": "1",
    "Keepalive-Ping-Interval": "50",
}
_PLAIN_PATH = re.compile(r"[^\"%\\\x00-\x1f\x7f]+")
"""A path that is preserved as the file name in a multipart body."""
_PROXY_STATUSES: Mapping[int | None, Trouble] = {
    502: "unreachable",
    503: "unreachable",
    504: "timeout",
}
"""How a call of Connect fails if the proxy in front of envd responds instead."""
_FILES_AT_ONCE = 50
_BYTES_AT_ONCE = 16 << 20

Message = Mapping[str, Any]


class Envd:
    """Every method raises CallError. Paths are absolute, or relative to the user's home."""

    def __init__(self, caller: HttpCaller) -> None:
        self._caller = caller

    async def call(self, method: str, message: Message, *, within_sec: float | None) -> Any:
        """A unary call, such as `process.Process/SendInput`; returns its response message."""
        with _connect_errors():
            response = await self._caller.call(
                "POST", f"/{method}", json=message, within_sec=within_sec
            )
        with parsing():
            return await parsed(response.content)

    async def stream(
        self, method: str, message: Message, *, within_sec: float | None = None, user: str = ""
    ) -> AsyncGenerator[Any]:
        """The messages of a stream until its end; the first arrives within the time."""
        headers = _STREAM | (_authorization(user) if user else {})
        body = json.dumps(message).encode()
        framed = b"\0" + len(body).to_bytes(4, "big") + body
        pieces = self._caller.stream(
            "POST", f"/{method}", data=framed, headers=headers, within_sec=within_sec
        )
        async with aclosing(pieces):
            with _connect_errors():
                async for flags, content in _frames(pieces):
                    with parsing():
                        message = await parsed(content or b"{}")
                        failure = message.get("error") if flags & _LAST else None
                    if failure:
                        raise error_of(failure)
                    if flags & _LAST:
                        return
                    yield message
        raise CallError("unreachable", f"{method} was interrupted")

    async def upload(self, files: Mapping[str, bytes], *, within_sec: float | None) -> None:
        """Write the files to their paths, a few in each request."""
        for paths in uploads(files):
            params = {} if len(paths) > 1 else {"path": paths[0]}
            body, headers = _form({path: files[path] for path in paths})
            await self._caller.call(
                "POST", "/files", data=body, headers=headers, params=params, within_sec=within_sec
            )

    async def send(self, path: str, content: AsyncIterator[bytes]) -> None:
        """Write the content to this path as it arrives. Raises the errors of the content."""
        source, failures = _observed(content)
        headers = {"Content-Type": "application/octet-stream"}
        params = {"path": path}
        try:
            await self._caller.call(
                "POST", "/files", data=source, headers=headers, params=params, within_sec=None
            )
        except CallError as error:
            raise (failures[0] if failures else error) from error

    def download(self, path: str, *, within_sec: float | None) -> AsyncGenerator[bytes]:
        """The content of a file, which begins within the time."""
        params = {"path": path}
        return self._caller.stream("GET", "/files", params=params, within_sec=within_sec)


def uploads(files: Mapping[str, bytes]) -> Iterator[Sequence[str]]:
    """Groups of paths to send together: limited in size, and an unusual path on its own."""
    together: list[str] = []
    size = 0
    for path in sorted(files):
        if not _PLAIN_PATH.fullmatch(path):
            yield [path]
            continue
        if together and (
            len(together) == _FILES_AT_ONCE or size + len(files[path]) > _BYTES_AT_ONCE
        ):
            yield together
            together, size = [], 0
        together.append(path)
        size += len(files[path])
    if together:
        yield together


@contextmanager
def _connect_errors() -> Iterator[None]:
    try:
        yield
    except CallError as error:
        trouble = _PROXY_STATUSES.get(error.status)
        if error.code or trouble is None:
            raise
        raise CallError(trouble, error.reason, status=error.status) from error


async def _frames(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    waiting = bytearray()
    async for piece in pieces:
        waiting += piece
        while len(waiting) >= _HEADER_BYTES:
            end = _HEADER_BYTES + int.from_bytes(waiting[1:_HEADER_BYTES], "big")
            if end > MESSAGE_BYTES:
                raise CallError("failed", "a message of the stream is too large")
            if len(waiting) < end:
                break
            flags, content = waiting[0], bytes(waiting[_HEADER_BYTES:end])
            del waiting[:end]
            yield flags, content


def _form(files: Mapping[str, bytes]) -> tuple[BytesIO, dict[str, str]]:
    """The files as a multipart body, and its header. A single file is named by its request."""
    boundary = token_hex(16)
    parts = []
    for path, content in files.items():
        name = path if len(files) > 1 else "file"
        head = f'Content-Disposition: form-data; name="file"; filename="{name}"'
        parts += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), content, b"\r\n"]
    body = BytesIO(b"".join((*parts, f"--{boundary}--\r\n".encode())))
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def _observed(content: AsyncIterator[bytes]) -> tuple[AsyncIterator[bytes], list[Exception]]:
    """The content, and its own error: a failed call hides it."""
    failures: list[Exception] = []

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece in content:
                yield piece
        except Exception as error:
            failures.append(error)
            raise

    return pieces(), failures


def _authorization(user: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:".encode()).decode()}
