"""A double of E2B: its control API, and the files and commands of its sandboxes, over real HTTP.

The real SDK talks to it. What goes wrong is switched on over HTTP too:

    GET    /_double               the sandboxes, the calls, how many were in flight at once
    PUT    /_double/faults        a list of faults, instead of those before
    DELETE /_double/sandboxes/ID  the sandbox ends, as if its time were over
    POST   /_double/reset-counts

`tests.support.e2b.double_process` runs it as a process of its own.
"""

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import web

from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from tests.support.e2b.wire import (
    END_OF_STREAM,
    STATUSES,
    Box,
    Fault,
    access,
    answer,
    cut,
    described,
    envelope,
    name_of,
    refusal,
    take_fault,
    uploaded,
    wanted,
)

API_KEY = "e2b_the_key_of_the_tests"
SITE = "/home/user/preview"
LAUNCHER = "/home/user/.preview/"
STARTS = re.compile(r"launcher\.py|http\.server")
"""The launcher, or the web server of 0.2.0."""
_HANG_SEC = 3600
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class E2bDouble:
    """Serves on 127.0.0.1 between `start` and `stop`."""

    def __init__(self, api_key: str = API_KEY) -> None:
        self.url = ""
        self.faults: list[Fault] = []
        self.is_list_narrowed = True
        self.most_per_page = 100
        self.calls: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        """Calls now, by sandbox and by project."""
        self.most_in_flight: Counter[str] = Counter()
        self._pools: list[HttpPool] = []
        self._came = asyncio.Condition()
        self._api_key = api_key
        self._boxes: dict[str, Box] = {}
        self._runner = web.AppRunner(
            self._app(), shutdown_timeout=0.1, handler_cancellation=True, access_log=None
        )

    async def start(self, port: int = 0) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port, backlog=1024).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def pool(self, backoff: Backoff) -> HttpPool:
        """A caller's connections, which are closed with the double."""
        self._pools.append(HttpPool(backoff))
        return self._pools[-1]

    async def close(self) -> None:
        for pool in self._pools:
            await pool.close()
        await self.stop()

    async def called(self, operation: str, times: int = 1) -> None:
        """Returns once that many calls of the operation have come."""
        async with self._came:
            await self._came.wait_for(lambda: self.calls[operation] >= times)

    def inject(self, kind: str, operation: str = "*", **details: Any) -> None:
        self.faults.append(Fault(kind, operation, **details))

    def calm(self) -> None:
        self.faults.clear()

    def reset_counts(self) -> None:
        self.calls.clear()
        self.most_in_flight.clear()

    @property
    def boxes(self) -> list[Box]:
        """The sandboxes that run or are paused now, the oldest first."""
        now = datetime.now(UTC)
        for box in list(self._boxes.values()):
            if box.end_at <= now and not box.is_paused:
                self.pause(box) if box.pauses else self.end(box.sandbox_id)
        return list(self._boxes.values())

    def pause(self, box: Box) -> None:
        box.is_paused = True

    def wake(self, box: Box) -> None:
        box.is_paused = False

    def find(self, sandbox_id: str) -> Box | None:
        return next((box for box in self.boxes if box.sandbox_id == sandbox_id), None)

    def end(self, sandbox_id: str) -> bool:
        return self._boxes.pop(sandbox_id, None) is not None

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._meet], client_max_size=1 << 30)
        app.add_routes(
            [
                web.post("/v2/sandboxes", self._create, name="create"),
                web.get("/v2/sandboxes", self._list, name="list"),
                web.get("/sandboxes/{id}", self._get, name="get"),
                web.delete("/sandboxes/{id}", self._delete, name="delete"),
                web.post("/sandboxes/{id}/timeout", self._set_timeout, name="timeout"),
                web.post("/v2/sandboxes/{id}/connect", self._connect, name="connect"),
                web.get("/health", self._health, name="health"),
                web.post("/files", self._upload, name="upload"),
                web.post("/filesystem.Filesystem/Remove", self._remove, name="remove"),
                web.post("/filesystem.Filesystem/ListDir", self._list_files, name="list_files"),
                web.post("/process.Process/Start", self._run, name="run"),
                web.get("/_double", self._show),
                web.put("/_double/faults", self._set_faults),
                web.delete("/_double/sandboxes/{id}", self._end),
                web.post("/_double/reset-counts", self._reset_counts),
            ]
        )
        return app

    @web.middleware
    async def _meet(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """What every call goes through: counted, held back, refused or broken off."""
        if (site := await self._site_of(request)) is not None:
            return site
        operation = request.match_info.route.name
        if operation is None:
            return await handler(request)
        subjects = await self._subjects(request)
        async with self._came:
            self.calls[operation] += 1
            self._came.notify_all()
        self.in_flight.update(subjects)
        for subject in subjects:
            most = max(self.most_in_flight[subject], self.in_flight[subject])
            self.most_in_flight[subject] = most
        try:
            return await self._answer(request, handler, take_fault(self.faults, operation))
        finally:
            self.in_flight.subtract(subjects)

    async def _answer(
        self, request: web.Request, handler: _Handler, fault: Fault | None
    ) -> web.StreamResponse:
        if fault is None:
            return await self._admit(request, handler)
        await asyncio.sleep(fault.seconds)
        match fault.kind:
            case "slow":
                return await self._admit(request, handler)
            case "drop_after" | "hang_after":
                await self._admit(request, handler)
            case "nonsense":
                return web.Response(status=500, text="<h1>Oops</h1>", content_type="text/html")
            case "lost":
                return refusal(502, "The sandbox was not found")
            case kind if kind in STATUSES:
                wait = {"Retry-After": str(fault.retry_after)} if fault.retry_after else None
                return refusal(STATUSES[kind], f"{kind}, as was asked for", wait)
        if fault.kind.startswith("hang"):
            await asyncio.sleep(_HANG_SEC)
        return cut(request)

    async def _admit(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """The control API wants the key, a sandbox its token; one that is gone the proxy tells."""
        sandbox_id = request.headers.get("E2b-Sandbox-Id")
        if sandbox_id is None:
            if request.headers.get("X-API-Key") != self._api_key:
                return refusal(401, "Invalid API key")
            if (missing := request.match_info.get("id")) and self.find(missing) is None:
                return refusal(404, f"sandbox {missing!r} doesn't exist")
            return await handler(request)
        if (box := self.find(sandbox_id)) is None or box.is_paused:
            return refusal(502, "The sandbox was not found")
        if request.headers.get("X-Access-Token") != box.token:
            return refusal(401, "Invalid access token")
        return await handler(request)

    async def _subjects(self, request: web.Request) -> set[str]:
        """The sandbox and the project that a call is about."""
        sandbox_id = request.match_info.get("id") or request.headers.get("E2b-Sandbox-Id")
        if sandbox_id:
            box = self.find(sandbox_id)
            return {sandbox_id} | ({box.metadata.get("project_id", "")} if box else set())
        if request.method == "POST":
            metadata = orjson.loads(await request.read()).get("metadata", {})
        else:
            metadata = wanted(request)
        return {metadata["project_id"]} if "project_id" in metadata else set()

    async def _create(self, request: web.Request) -> web.Response:
        order = orjson.loads(await request.read())
        now = datetime.now(UTC)
        box = Box(
            sandbox_id=f"i{secrets.token_hex(10)}",
            template=order["templateID"],
            metadata=order.get("metadata", {}),
            started_at=now,
            end_at=now + timedelta(seconds=order.get("timeout", 15)),
            token=secrets.token_hex(8),
            pauses=order.get("autoPause", False),
        )
        self._boxes[box.sandbox_id] = box
        return answer(201, access(box, self._domain))

    async def _list(self, request: web.Request) -> web.Response:
        """In pages of two unless more is asked for, so that whoever reads only the first one is
        found out."""
        narrowed = wanted(request) if self.is_list_narrowed else {}
        found = [box for box in self.boxes if narrowed.items() <= box.metadata.items()]
        start = int(request.query.get("nextToken", "0"))
        end = start + min(int(request.query.get("limit", "2")), self.most_per_page)
        page = [described(box) for box in found[start:end]]
        headers = {"X-Next-Token": str(end)} if end < len(found) else {}
        return answer(200, page, headers)

    async def _get(self, request: web.Request) -> web.Response:
        box = self._named(request)
        return answer(200, described(box) | {"domain": self._domain, "envdAccessToken": box.token})

    async def _delete(self, request: web.Request) -> web.Response:
        self.end(self._named(request).sandbox_id)
        return web.Response(status=204)

    async def _set_timeout(self, request: web.Request) -> web.Response:
        box = self._named(request)
        if box.is_paused:
            return refusal(404, f"sandbox {box.sandbox_id!r} isn't running")
        seconds = orjson.loads(await request.read())["timeout"]
        box.end_at = datetime.now(UTC) + timedelta(seconds=seconds)
        return web.Response(status=204)

    async def _connect(self, request: web.Request) -> web.Response:
        """Lengthens the sandbox's life, if what is asked for is longer, as E2B does; wakes a
        paused one."""
        box = self._named(request)
        seconds = orjson.loads(await request.read()).get("timeout", 300)
        box.end_at = max(box.end_at, datetime.now(UTC) + timedelta(seconds=seconds))
        if box.is_paused:
            self.wake(box)
        return answer(200, access(box, self._domain))

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _upload(self, request: web.Request) -> web.Response:
        box = self._named(request)
        sent = await uploaded(request)
        for path in sent:
            if any(file.startswith(f"{path}/") for file in box.files):
                return refusal(400, f"path is a directory: {path}")
        box.files |= {path: each for path, each in sent.items() if not path.startswith(LAUNCHER)}
        written = [{"name": name_of(path), "path": path, "type": "file"} for path in sent]
        return answer(200, written)

    async def _remove(self, request: web.Request) -> web.Response:
        box = self._named(request)
        path = orjson.loads(await request.read())["path"]
        gone = [file for file in box.files if f"{file}/".startswith(f"{path}/")]
        if not gone:
            return answer(404, {"code": "not_found", "message": f"path not found: {path}"})
        for file in gone:
            del box.files[file]
        return answer(200, {})

    async def _list_files(self, request: web.Request) -> web.Response:
        """All files below, whatever the depth."""
        path = orjson.loads(await request.read())["path"]
        files = [file for file in self._named(request).files if file.startswith(f"{path}/")]
        entries = [
            {"name": name_of(file), "path": file, "type": "FILE_TYPE_FILE"} for file in files
        ]
        return answer(200, {"entries": entries})

    async def _run(self, request: web.Request) -> web.StreamResponse:
        """Understands two commands: the launcher, which can run once, and waiting for it."""
        box = self._named(request)
        command = orjson.loads((await request.read())[5:])["process"]["args"][-1]
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        await response.write(envelope({"event": {"start": {"pid": 7}}}))
        if STARTS.search(command) and not box.is_served:
            box.is_served = True
            await asyncio.sleep(_HANG_SEC)
        code = 0 if box.is_served and "/dev/tcp/" in command else 1
        ended = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
        await response.write(envelope({"event": {"end": ended}}))
        await response.write(envelope({}, END_OF_STREAM))
        return response

    async def _site_of(self, request: web.Request) -> web.Response | None:
        """What a sandbox itself serves, at `PORT-ID.localhost`."""
        name, is_site, _ = request.host.partition(".localhost")
        if not is_site:
            return None
        box = self.find(name.partition("-")[2])
        if box is None or not box.is_served:
            return refusal(502, "The sandbox was not found" if box is None else "port is not open")
        path = request.path + ("index.html" if request.path.endswith("/") else "")
        content = box.files.get(SITE + path)
        return web.Response(status=404) if content is None else web.Response(body=content)

    def _named(self, request: web.Request) -> Box:
        return self._boxes[request.match_info.get("id") or request.headers["E2b-Sandbox-Id"]]

    @property
    def _domain(self) -> str:
        return f"localhost:{self._runner.addresses[0][1]}"

    async def _show(self, _request: web.Request) -> web.Response:
        return answer(
            200,
            {
                "sandboxes": [described(box) | {"files": sorted(box.files)} for box in self.boxes],
                "calls": self.calls,
                "in_flight": +self.in_flight,
                "most_in_flight": self.most_in_flight,
                "faults": [asdict(fault) for fault in self.faults],
            },
        )

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            self.faults = [Fault(**wish) for wish in orjson.loads(await request.read())]
        except (TypeError, ValueError) as error:
            return refusal(400, str(error))
        return await self._show(request)

    async def _end(self, request: web.Request) -> web.Response:
        is_known = self.end(request.match_info["id"])
        return web.Response(status=204) if is_known else refusal(404, "no such sandbox")

    async def _reset_counts(self, request: web.Request) -> web.Response:
        self.reset_counts()
        return await self._show(request)


@asynccontextmanager
async def e2b_double(api_key: str = API_KEY) -> AsyncIterator[E2bDouble]:
    """A double in this process, on a port of its own."""
    double = E2bDouble(api_key)
    await double.start()
    try:
        yield double
    finally:
        await double.close()
