"""A double of E2B whose sandboxes really run commands: each is a folder, a port and processes.

Its control API is that of `tests.e2b_double`, with snapshots and metrics besides. A paused
sandbox's processes are stopped, those of one that is killed are killed.
"""

import asyncio
import base64
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from aiohttp import BodyPartReader, web

from sandyard.entrypoints.server import free_port
from tests.e2b_double import API_KEY, E2bDouble
from tests.e2b_wire import (
    END_OF_STREAM,
    Box,
    answer,
    envelope,
    file_name,
    name_of,
    refusal,
)

TEMPLATE = "base"
LONGEST_SEC = 86400
_MARK = "E2B_MACHINE"


@dataclass(slots=True)
class Machine:
    """The inside of one sandbox."""

    sandbox_id: str
    home: Path
    port: int
    commands: list[Process] = field(default_factory=list)

    def pids(self) -> Iterator[int]:
        """All processes that were begun in it, whoever their parents are now."""
        mark = f"{_MARK}={self.sandbox_id}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)

    def signal(self, number: int) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    async def destroy(self) -> None:
        while list(self.pids()):
            self.signal(signal.SIGKILL)
            await asyncio.sleep(0.01)
        for command in self.commands:
            await command.wait()
        shutil.rmtree(self.home)


@dataclass(frozen=True, slots=True)
class Stored:
    """A snapshot: the files, and how many processes E2B would have kept with them."""

    files: Path
    processes: int


class E2bMachines(E2bDouble):
    def __init__(self, folder: Path, environment: Mapping[str, str], api_key: str) -> None:
        super().__init__(api_key)
        self.machines: dict[str, Machine] = {}
        self.snapshots: dict[str, Stored] = {}
        self.is_measuring = True
        self._folder = folder
        self._environment = environment
        self._ending: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        for sandbox_id in list(self.machines):
            self.end(sandbox_id)
        await asyncio.gather(*self._ending)
        await super().stop()

    def end(self, sandbox_id: str) -> bool:
        if (machine := self.machines.pop(sandbox_id, None)) is not None:
            task = asyncio.get_running_loop().create_task(machine.destroy())
            self._ending.add(task)
        return super().end(sandbox_id)

    def pause(self, box: Box) -> None:
        super().pause(box)
        self.machines[box.sandbox_id].signal(signal.SIGSTOP)

    def wake(self, box: Box) -> None:
        super().wake(box)
        self.machines[box.sandbox_id].signal(signal.SIGCONT)

    def _app(self) -> web.Application:
        app = super()._app()
        app.add_routes(
            [
                web.get("/files", self._download, name="download"),
                web.get("/sandboxes/{id}/metrics", self._metrics, name="metrics"),
                web.post("/sandboxes/{id}/snapshots", self._keep, name="snapshot"),
                web.get("/snapshots", self._list_snapshots, name="list_snapshots"),
                web.delete("/templates/{snapshot}", self._delete_snapshot, name="delete_snapshot"),
            ]
        )
        return app

    async def _create(self, request: web.Request) -> web.Response:
        order = orjson.loads(await request.read())
        template = order["templateID"]
        if order.get("timeout", 0) > LONGEST_SEC:
            return refusal(400, "Timeout cannot be greater than 24 hours")
        if template != TEMPLATE and template not in self.snapshots:
            return refusal(404, f"template {template!r} not found")
        before = set(self._boxes)
        made = await super()._create(request)
        [sandbox_id] = set(self._boxes) - before
        home = self._folder / sandbox_id
        if template in self.snapshots:
            shutil.copytree(self.snapshots[template].files, home, symlinks=True)
        else:
            home.mkdir()
        self.machines[sandbox_id] = Machine(sandbox_id, home, free_port())
        return made

    async def _upload(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        written = []
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            path = request.query.get("path") or file_name(part)
            file = machine.home / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(await part.read()))
            written.append({"name": name_of(path), "path": path, "type": "file"})
        return answer(200, written)

    async def _download(self, request: web.Request) -> web.Response:
        path = request.query["path"]
        try:
            return web.Response(body=(self._machine(request).home / path).read_bytes())
        except FileNotFoundError:
            return refusal(404, f"path {path!r} does not exist")

    async def _run(self, request: web.Request) -> web.StreamResponse:
        machine = self._machine(request)
        order = orjson.loads((await request.read())[5:])["process"]
        command = await self._spawn(machine, order)
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        await response.write(envelope({"event": {"start": {"pid": command.pid}}}))
        assert command.stdout is not None
        assert command.stderr is not None
        said, trouble = await asyncio.gather(command.stdout.read(), command.stderr.read())
        for name, content in (("stdout", said), ("stderr", trouble)):
            data = {"data": {name: base64.b64encode(content).decode()}}
            await response.write(envelope({"event": data}))
        code = await command.wait()
        ended = {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}
        await response.write(envelope({"event": {"end": ended}}))
        await response.write(envelope({}, END_OF_STREAM))
        return response

    async def _spawn(self, machine: Machine, order: dict[str, Any]) -> Process:
        """In the real one every sandbox has all ports to itself; here each has one."""
        given = order.get("envs", {})
        port = {"PORT": str(machine.port)} if "PORT" in given else {}
        command = await asyncio.create_subprocess_exec(
            order["cmd"],
            *order["args"],
            cwd=machine.home if order.get("cwd") == "~" else "/",
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(machine.home),
                **self._environment,
                **given,
                **port,
                _MARK: machine.sandbox_id,
            },
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        machine.commands.append(command)  # it goes on when its caller is gone
        return command

    async def _metrics(self, request: web.Request) -> web.Response:
        """Half a processor's work from the start on."""
        box, now = self._named(request), datetime.now(UTC)
        measured = {
            "cpuCount": 2,
            "cpuUsedPct": 25.0,
            "memUsed": 100 << 20,
            "memTotal": 512 << 20,
            "memCache": 0,
            "diskUsed": 1 << 30,
            "diskTotal": 10 << 30,
        }
        points = [
            measured | {"timestamp": at.isoformat(), "timestampUnix": int(at.timestamp())}
            for at in (box.started_at, now)
            if at.timestamp() >= float(request.query.get("start", "0"))
        ]
        return answer(200, points if self.is_measuring else [])

    async def _keep(self, request: web.Request) -> web.Response:
        box = self._named(request)
        if box.is_paused:
            return refusal(404, f"sandbox {box.sandbox_id!r} isn't running")
        machine = self.machines[box.sandbox_id]
        name = orjson.loads(await request.read()).get("name") or f"s{len(self.snapshots)}"
        snapshot_id = f"team/{name}:default"
        files = self._folder / "snapshots" / name
        if files.exists():
            shutil.rmtree(files)
        shutil.copytree(machine.home, files, symlinks=True)
        self.snapshots[snapshot_id] = Stored(files, len(list(machine.pids())))
        return answer(201, _described(snapshot_id))

    async def _list_snapshots(self, request: web.Request) -> web.Response:
        name = request.query.get("name")
        found = [each for each in self.snapshots if name in (None, each)]
        return answer(200, [_described(each) for each in found])

    async def _delete_snapshot(self, request: web.Request) -> web.Response:
        snapshot_id = request.match_info["snapshot"]
        if any(box.template == snapshot_id for box in self.boxes):
            return refusal(400, "there are running sandboxes using it")
        kept = self.snapshots.pop(snapshot_id, None)
        if kept is None:
            return refusal(404, "no such template")
        shutil.rmtree(kept.files)
        return web.Response(status=204)

    async def _site_of(self, request: web.Request) -> web.Response | None:
        name, is_site, _ = request.host.partition(".localhost")
        if not is_site:
            return None
        box = self.find(name.partition("-")[2])
        if box is None or box.is_paused:
            return refusal(502, "The sandbox was not found")
        url = f"http://127.0.0.1:{self.machines[box.sandbox_id].port}{request.path_qs}"
        try:
            async with aiohttp.ClientSession() as client, client.get(url) as page:
                return web.Response(status=page.status, body=await page.read())
        except aiohttp.ClientError:
            return refusal(502, "port is not open")

    def _machine(self, request: web.Request) -> Machine:
        return self.machines[self._named(request).sandbox_id]


def _described(snapshot_id: str) -> dict[str, Any]:
    return {"snapshotID": snapshot_id, "names": [snapshot_id.removesuffix(":default")]}


@asynccontextmanager
async def e2b_machines(
    folder: Path, environment: Mapping[str, str] | None = None, api_key: str = API_KEY
) -> AsyncIterator[E2bMachines]:
    """Such a double in this process, on a port of its own."""
    double = E2bMachines(folder, environment or {}, api_key)
    await double.start()
    try:
        yield double
    finally:
        await double.stop()
