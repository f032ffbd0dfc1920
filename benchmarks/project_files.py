"""A project of 5,000 files: the first sync, and one changed file until it is served."""

import io
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from statistics import median

import aiohttp

from benchmarks.loops import run
from benchmarks.previews import sign_up
from benchmarks.report import Figure, Measured, Say
from sandyard.kit.free_ports import free_port
from tests.support.servers.processes import clean_environment, wait_until_ready

_FILES = 5000
_FILE_BYTES = 2000
_ROUNDS = 20
_LIMIT_MS = 150


def measure(folder: Path, say: Say) -> Measured:
    port = free_port()
    command = [sys.executable, "-m", "sandyard", "serve", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--data-dir", str(folder / "data")],
        env=clean_environment({"PARTS": "platform,previews", "LOG_LEVEL": "WARNING"}),
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", server)
        return run(_measure(f"http://127.0.0.1:{port}", folder / "data", say))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)


async def _measure(origin: str, data: Path, say: Say) -> Measured:
    url = f"{origin}/api/v1"
    async with aiohttp.ClientSession() as session:

        async def call(
            method: str, path: str, body: object = None, **headers: str
        ) -> dict[str, str]:
            async with session.request(method, url + path, json=body, headers=headers) as answer:
                if answer.status >= 300:
                    raise RuntimeError(f"{path}: {answer.status} {await answer.text()}")
                found: dict[str, str] = await answer.json()
                return found

        key = await sign_up(call, data)
        made = await call("POST", "/projects", {"name": "large"}, **key)
        project = f"/projects/{made['project_id']}"
        say(f"project: {_FILES} files of {_FILE_BYTES} bytes")
        began = time.perf_counter()
        async with session.put(f"{url}{project}/files/tar", data=_archive(), headers=key) as answer:
            answer.raise_for_status()
        pushed, began = time.perf_counter() - began, time.perf_counter()
        await call("POST", f"{project}/sync", **key)
        synced = time.perf_counter() - began
        token = await call("POST", f"{project}/tokens", {}, **key)
        page = {"Host": token["url"].split("/")[2], "X-Access-Token": token["token"]}
        put_ms, sync_ms, seen_ms = [], [], []
        for number in range(_ROUNDS):
            text = f"<h1>{number}</h1>"
            began = time.perf_counter()
            change = {"files": [{"path": "folder7/7.txt", "content": text}]}
            await call("PUT", f"{project}/files", change, **key)
            put = time.perf_counter()
            await call("POST", f"{project}/sync", **key)
            sync = time.perf_counter()
            async with session.get(f"{origin}/folder7/7.txt", headers=page) as answer:
                if await answer.text() != text:
                    raise RuntimeError("the file is not served as it was pushed")
            seen = time.perf_counter()
            put_ms.append((put - began) * 1000)
            sync_ms.append((sync - put) * 1000)
            seen_ms.append((seen - put) * 1000)
    return Measured(
        [
            Figure.below(
                f"project of {_FILES} files: sync of one changed file to its byte served",
                median(seen_ms),
                _LIMIT_MS,
                "ms",
            ),
            Figure("  its push as a version; the sync alone", _pair(put_ms, sync_ms)),
            Figure("  all files as a tar; the first sync", f"{pushed:.2f} s, {synced:.2f} s"),
        ],
        f"project {_FILES}",
    )


def _pair(first: list[float], second: list[float]) -> str:
    return f"{median(first):.0f} ms, {median(second):.0f} ms"


def _archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for number in range(_FILES):
            content = f"{number} ".encode().ljust(_FILE_BYTES, b"x")
            member = tarfile.TarInfo(f"folder{number % 50}/{number}.txt")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
