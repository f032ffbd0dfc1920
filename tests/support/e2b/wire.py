"""What E2B's double says and hears: its sandboxes and faults, and how they look on the wire."""

import re
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
from aiohttp import web

STATUSES = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "rate_limited": 429,
    "error": 500,
    "unavailable": 503,
}
_OTHERS = ("lost", "nonsense", "hang", "hang_after", "drop", "drop_after", "slow")
KINDS = (*STATUSES, *_OTHERS)
END_OF_STREAM = 2
_BOUNDARY = re.compile('boundary="?([^";]+)')
_FILE_NAME = re.compile('filename="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Fault:
    """What calls of this name meet, `*` for all: always, or so many `times`.

    `lost` is what the proxy before a sandbox says when it finds none, `nonsense` no JSON at all;
    `drop` and `hang` come instead of the work, `drop_after` and `hang_after` when it is done.
    """

    kind: str
    operation: str = "*"
    times: int | None = None
    retry_after: int | None = None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no fault {self.kind}; there are {', '.join(KINDS)}")


@dataclass(slots=True)
class Box:
    """A sandbox that runs, or is paused."""

    sandbox_id: str
    template: str
    metadata: dict[str, str]
    started_at: datetime
    end_at: datetime
    token: str
    files: dict[str, bytes] = field(default_factory=dict)
    is_served: bool = False
    pauses: bool = False
    """Whether it is paused at its end, and not killed."""
    is_paused: bool = False


def take_fault(faults: list[Fault], operation: str) -> Fault | None:
    """The first that is meant for this call, which is then one time fewer left."""
    for place, fault in enumerate(faults):
        if fault.operation in ("*", operation):
            if fault.times is not None:
                left = fault.times - 1
                faults[place : place + 1] = [replace(fault, times=left)] if left else []
            return fault
    return None


def access(box: Box, domain: str) -> dict[str, Any]:
    """What whoever made or found it needs to get in."""
    return {
        "templateID": box.template,
        "sandboxID": box.sandbox_id,
        "clientID": "client",
        "envdVersion": "0.6.7",
        "envdAccessToken": box.token,
        "domain": domain,
    }


def wanted(request: web.Request) -> dict[str, str]:
    """The metadata that a list is narrowed to; the SDK quotes it twice."""
    pairs = parse_qsl(request.query.get("metadata", ""))
    return {unquote(name): unquote(value) for name, value in pairs}


def described(box: Box) -> dict[str, Any]:
    return {
        "templateID": box.template,
        "sandboxID": box.sandbox_id,
        "clientID": "client",
        "startedAt": box.started_at.isoformat(),
        "endAt": box.end_at.isoformat(),
        "cpuCount": 2,
        "memoryMB": 512,
        "diskSizeMB": 1024,
        "state": "paused" if box.is_paused else "running",
        "envdVersion": "0.6.7",
        "metadata": box.metadata,
    }


async def uploaded(request: web.Request) -> dict[str, bytes]:
    """The files of a multipart upload by their whole paths. aiohttp's own reading drops the first
    slash of a path, and warns of itself when a boundary comes in two packets."""
    content, boundary = await request.read(), _BOUNDARY.search(request.headers["Content-Type"])
    assert boundary is not None
    files = {}
    for part in content.split(b"--" + boundary[1].encode())[1:-1]:
        head, _, file = part.partition(b"\r\n\r\n")
        named = _FILE_NAME.search(head.decode())
        path = request.query.get("path") or (named[1] if named else "")
        files[path] = file.removesuffix(b"\r\n")
    return files


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def answer(status: int, content: Any, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        status=status,
        body=orjson.dumps(content),
        content_type="application/json",
        headers=headers,
    )


def refusal(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return answer(status, {"code": status, "message": message}, headers)


def envelope(message: dict[str, Any], flags: int = 0) -> bytes:
    """A message of a stream, as the Connect protocol frames it."""
    body = orjson.dumps(message)
    return bytes([flags]) + len(body).to_bytes(4, "big") + body


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
