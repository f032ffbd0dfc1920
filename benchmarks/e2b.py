"""E2B's API beside the Platform's own: sandboxes, commands and files, over the same machine."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import orjson

from benchmarks.report import Figure, Measured, Say
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

_WARM_STARTS = 8
_COMMANDS = 60
_TRANSFERS = 5
_FILE = bytes(64 * 1024 * 1024)
_MOST = 1.2
_TRUE = ["/bin/bash", "-l", "-c", "true"]
_ROOMY = {
    "WRITES_PER_ACCOUNT": "12000/minute",
    "QUOTA_SANDBOXES": "100",
    "QUOTA_CPU": "200",
    "QUOTA_MEMORY_GB": "200",
}
_LAST = 2


@dataclass(frozen=True, slots=True)
class _Entered:
    """A sandbox as each of the two APIs uses it."""

    run: Callable[[], Any]
    upload: Callable[[], Any]
    download: Callable[[], Any]
    remove: Callable[[], Any]


class _Platform:
    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._client = httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60)
        templates = self._client.get("/templates", params={"q": "base"}).json()["templates"]
        [self._template] = [each["template_id"] for each in templates if each["name"] == "base"]
        self._made = 0

    def create(self) -> _Entered:
        self._made += 1
        body = {"name": f"bench-{self._made}", "template_id": self._template}
        sandbox_id = self._send("POST", "/sandboxes", json=body).json()["sandbox_id"]
        path = f"/sandboxes/{sandbox_id}"
        self._send("POST", f"{path}/start")
        command = {"command": _TRUE}
        file = {"path": "file"}
        return _Entered(
            run=lambda: self._send("POST", f"{path}/commands", json=command),
            upload=lambda: self._send("PUT", f"{path}/files", params=file, content=_FILE),
            download=lambda: self._send("GET", f"{path}/files", params=file).content,
            remove=lambda: self._send("DELETE", path),
        )

    def _send(self, method: str, path: str, **named: Any) -> httpx.Response:
        return self._client.request(method, path, **named).raise_for_status()


class _E2b:
    def __init__(self, url: str, key: str) -> None:
        headers = {"X-API-Key": key}
        self._client = httpx.Client(base_url=f"{url}/e2b", headers=headers, timeout=60)

    def create(self) -> _Entered:
        made = self._client.post("/v2/sandboxes", json={"templateID": "base", "timeout": 600})
        told = made.raise_for_status().json()
        sandbox_id = told["sandboxID"]
        headers = {"E2b-Sandbox-Id": sandbox_id, "X-Access-Token": told["envdAccessToken"]}
        raw = {**headers, "Content-Type": "application/octet-stream"}
        file = {"path": "file"}
        client = self._client
        return _Entered(
            run=lambda: self._run(headers),
            upload=lambda: client.post(
                "/files", params=file, headers=raw, content=_FILE
            ).raise_for_status(),
            download=lambda: client.get("/files", params=file, headers=headers).content,
            remove=lambda: client.delete(f"/sandboxes/{sandbox_id}").raise_for_status(),
        )

    def _run(self, headers: dict[str, str]) -> None:
        body = orjson.dumps({"process": {"cmd": _TRUE[0], "args": _TRUE[1:]}, "stdin": False})
        answer = self._client.post(
            "/process.Process/Start",
            content=b"\0" + len(body).to_bytes(4, "big") + body,
            headers={**headers, "Content-Type": "application/connect+json"},
        )
        if b'"exitCode":0' not in answer.content or answer.content[-7] != _LAST:
            raise RuntimeError(f"the command did not end well: {answer.text}")


def measure(folder: Path, say: Say) -> Measured:
    figures: list[Figure] = []
    with _served(folder) as (own, e2b):
        say("E2B's API: from create to the first result")
        figures += _starts(own, e2b)
        ours, theirs = own.create(), e2b.create()
        try:
            say("E2B's API: commands")
            figures += _compared("a command (bash -l -c true)", ours.run, theirs.run, _COMMANDS)
            say("E2B's API: files")
            figures += _compared("upload of 64 MB", ours.upload, theirs.upload, _TRANSFERS)
            figures += _compared("download of 64 MB", ours.download, theirs.download, _TRANSFERS)
        finally:
            ours.remove()
            theirs.remove()
    return Measured(figures)


@contextmanager
def _served(folder: Path) -> Iterator[tuple[_Platform, _E2b]]:
    with sandyard_serve(folder / "data", environment=_ROOMY) as server:
        ann = signed_up(server, "ann", mail=1)
        body = {"name": "bench", "scope": "run", "format": "e2b"}
        key = ann.call("POST", "/api-keys", body, expect=201)["api_key"]
        yield _Platform(server.url, ann.headers), _E2b(server.url, key)


def _starts(own: _Platform, e2b: _E2b) -> list[Figure]:
    cold = _first_result(e2b)
    ours, theirs = [], []
    for _ in range(_WARM_STARTS):  # in turn, so that both meet the same machine
        ours.append(_first_result(own))
        theirs.append(_first_result(e2b))
    return [
        Figure("E2B: create to first result, cold", f"{cold * 1000:.0f} ms"),
        *_figures("create to first result, warm", ours, theirs),
    ]


def _first_result(api: _Platform | _E2b) -> float:
    started = time.perf_counter()
    made = api.create()
    made.run()
    seconds = time.perf_counter() - started
    made.remove()
    return seconds


def _compared(
    what: str, ours: Callable[[], Any], theirs: Callable[[], Any], times: int
) -> list[Figure]:
    own, e2b = [], []
    for _ in range(times):
        own.append(_seconds(ours))
        e2b.append(_seconds(theirs))
    return _figures(what, own, e2b)


def _figures(what: str, ours: list[float], theirs: list[float]) -> list[Figure]:
    own, e2b = median(ours), median(theirs)
    return [
        Figure(f"{what}, the Platform's API", f"{own * 1000:.1f} ms"),
        Figure(f"{what}, E2B's API", f"{e2b * 1000:.1f} ms"),
        Figure.at_most(f"{what}, E2B's beside the Platform's", e2b / own, _MOST),
    ]


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
