"""A double of E2B whose sandboxes really run commands: each is a machine of its own.

Its control API is that of `tests.support.e2b.double`, with snapshots and metrics besides. A paused
sandbox's processes are stopped, those of one that is killed are killed.
"""

import asyncio
import base64
import errno
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from tests.fakes.session_files import _changes as changes_between
from tests.support.e2b.double import API_KEY, E2bDouble
from tests.support.e2b.machine import HOME, Command, Machine, MachineOptions
from tests.support.e2b.wire import (
    END_OF_STREAM,
    Box,
    answer,
    envelope,
    name_of,
    refusal,
    uploaded,
)

TEMPLATE = "base"
LONGEST_SEC = 86400
_POLL_SEC = 0.02
_EVENTS = {
    "created": "EVENT_TYPE_CREATE",
    "written": "EVENT_TYPE_WRITE",
    "removed": "EVENT_TYPE_REMOVE",
    "renamed": "EVENT_TYPE_RENAME",
    "attributes": "EVENT_TYPE_CHMOD",
}
_STREAM = {"Content-Type": "application/connect+json"}


@dataclass(frozen=True, slots=True)
class Stored:
    """A snapshot: the files, and how many processes E2B would have kept with them."""

    files: Path
    processes: int


class E2bMachines(E2bDouble):
    def __init__(self, folder: Path, options: MachineOptions, api_key: str) -> None:
        super().__init__(api_key)
        self.machines: dict[str, Machine] = {}
        self.snapshots: dict[str, Stored] = {}
        self.is_measuring = True
        self._folder = folder
        self._options = options
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
                web.post("/filesystem.Filesystem/WatchDir", self._watch, name="watch"),
                web.post("/process.Process/SendInput", self._take_input, name="input"),
                web.post("/process.Process/CloseStdin", self._close_input, name="close_input"),
                web.post("/process.Process/SendSignal", self._kill, name="signal"),
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
        self.machines[sandbox_id] = machine = Machine(sandbox_id, self._options)
        await machine.begin(home)
        return made

    async def _upload(self, request: web.Request) -> web.Response:
        machine, written = self._machine(request), []
        try:
            async for path, content in _sent(request):
                file = machine.path(path)
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("wb") as opened:
                    async for piece in content:
                        opened.write(piece)
                written.append({"name": name_of(path), "path": path, "type": "file"})
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            await request.content.read()
            return refusal(507, "not enough disk space available")
        return answer(200, written)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        file = self._machine(request).path(request.query["path"])
        if not file.exists():
            return refusal(404, f"path {request.query['path']!r} does not exist")
        response = web.StreamResponse()
        with file.open("rb") as opened:
            await response.prepare(request)
            while piece := opened.read(1 << 18):
                await response.write(piece)
        return response

    async def _remove(self, request: web.Request) -> web.Response:
        path = orjson.loads(await request.read())["path"]
        file = self._machine(request).path(path)
        if not file.exists():
            return _error("not_found", f"path not found: {path}")
        file.unlink()
        return answer(200, {})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        order = orjson.loads((await request.read())[5:])
        machine, pattern = self._machine(request), "**/*" if order.get("recursive") else "*"
        folder = machine.path(order["path"])
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        if not folder.is_dir():
            failure = {"code": "not_found", "message": f"path {order['path']} not found"}
            await response.write(envelope({"error": failure}, END_OF_STREAM))
            return response
        before = _seen(folder, pattern)
        await response.write(envelope({"start": {}}))
        while machine.sandbox_id in self.machines:
            await asyncio.sleep(_POLL_SEC)
            after = _seen(folder, pattern)
            for change in changes_between(before, after):
                event = {"name": change.path, "type": _EVENTS[change.kind]}
                await response.write(envelope({"filesystem": event}))
            before = after
        failure = {"code": "unavailable", "message": "the connection to the sandbox ended"}
        await response.write(envelope({"error": failure}, END_OF_STREAM))
        return response

    async def _run(self, request: web.Request) -> web.StreamResponse:
        order = orjson.loads((await request.read())[5:])
        machine = self._machine(request)
        command = await machine.spawn(order["process"], has_input=order.get("stdin", False))
        response = web.StreamResponse(headers=_STREAM)
        await response.prepare(request)
        await response.write(envelope({"event": {"start": {"pid": command.process.pid}}}))
        async for name, content in command.output():
            data = {"data": {name: base64.b64encode(content).decode()}}
            await response.write(envelope({"event": data}))
        code = await command.ended()
        ended = {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}
        await response.write(envelope({"event": {"end": ended}}))
        await response.write(envelope({}, END_OF_STREAM))
        return response

    async def _take_input(self, request: web.Request) -> web.Response:
        order = orjson.loads(await request.read())
        if (command := self._command(request, order)) is None:
            return _error("not_found", "process not found")
        stdin = command.process.stdin
        if stdin is None or stdin.is_closing():
            return _error("failed_precondition", "stdin not enabled or closed")
        try:
            stdin.write(base64.b64decode(order["input"]["stdin"]))
            await stdin.drain()
        except OSError as error:
            return _error("internal", f"error writing to stdin: {error}")
        return answer(200, {})

    async def _close_input(self, request: web.Request) -> web.Response:
        command = self._command(request, orjson.loads(await request.read()))
        if command is None:
            return _error("not_found", "process not found")
        if command.process.stdin is None or command.process.stdin.is_closing():
            return _error("failed_precondition", "stdin not enabled or closed")
        command.process.stdin.close()
        return answer(200, {})

    async def _kill(self, request: web.Request) -> web.Response:
        command = self._command(request, orjson.loads(await request.read()))
        if command is None or command.process.returncode is not None:
            return _error("not_found", "process not found")
        command.process.send_signal(signal.SIGKILL)
        return answer(200, {})

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
        shutil.copytree(machine.path(HOME), files, symlinks=True)
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
        port, _, sandbox_id = name.partition("-")
        box = self.find(sandbox_id)
        if box is None or box.is_paused:
            return refusal(502, "The sandbox was not found")
        machine, body = self.machines[sandbox_id], await request.read()
        sent = (int(port), request.method, request.path_qs, body, request.headers)
        try:
            status, page = await asyncio.to_thread(machine.request, *sent)
        except OSError:
            return refusal(502, "port is not open")
        return web.Response(status=status, body=page)

    def _machine(self, request: web.Request) -> Machine:
        return self.machines[self._named(request).sandbox_id]

    def _command(self, request: web.Request, order: dict[str, Any]) -> Command | None:
        return self._machine(request).commands.get(order["process"]["pid"])


async def _sent(request: web.Request) -> AsyncIterator[tuple[str, AsyncIterator[bytes]]]:
    """The files of an upload: one as it is, or several as parts."""
    if request.content_type == "application/octet-stream":
        yield request.query["path"], request.content.iter_any()
        return
    for path, content in (await uploaded(request)).items():
        yield path, _one(content)


async def _one(piece: bytes) -> AsyncIterator[bytes]:
    yield piece


def _seen(folder: Path, pattern: str) -> dict[str, os.stat_result]:
    return {str(each.relative_to(folder)): each.lstat() for each in folder.glob(pattern)}


def _error(code: str, message: str) -> web.Response:
    status = {"not_found": 404, "failed_precondition": 400, "internal": 500}[code]
    return answer(status, {"code": code, "message": message})


def _described(snapshot_id: str) -> dict[str, Any]:
    return {"snapshotID": snapshot_id, "names": [snapshot_id.removesuffix(":default")]}


@asynccontextmanager
async def e2b_machines(
    folder: Path, options: MachineOptions | None = None, api_key: str = API_KEY
) -> AsyncIterator[E2bMachines]:
    """Such a double in this process, on a port of its own."""
    double = E2bMachines(folder, options or MachineOptions(), api_key)
    await double.start()
    try:
        yield double
    finally:
        await double.close()
