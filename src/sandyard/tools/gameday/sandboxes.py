"""Users who make, start and stop sandboxes, and retry until each call has a response."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil

from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.processes import log_in
from sandyard.tools.gameday.promises import NO_ANSWER, Violation, other_errors
from sandyard.tools.gameday.workload import Workload

_USERS = 3
_REST_SEC = 60
_FINAL = ("created", "stopped", "timeout")
_TOLD_WELL = {
    "create": {201, 503, NO_ANSWER},
    "start": {200, 409, 503, NO_ANSWER},
    "stop": {200, 409, 503, NO_ANSWER},
    "read": {200, 503, NO_ANSWER},
}
"""A start or stop whose response was lost is a conflict when it is repeated."""


class Users(Workload):
    """Each makes a sandbox, starts and stops it, and makes the next."""

    def __init__(self, client: httpx.AsyncClient, urls: Sequence[str], data_dir: Path) -> None:
        super().__init__(client, urls)
        self._data_dir = data_dir
        self._headers: Mapping[str, str] = {}
        self._template = ""
        self.made: list[str] = []

    async def prepare(self) -> None:
        self._headers = await log_in(self._client, self._urls[0], self._data_dir)
        path = "/api/v1/templates?visibility=official&q=static"
        found = await self._client.get(self._urls[0] + path, headers=self._headers)
        self._template = found.raise_for_status().json()["templates"][0]["template_id"]
        self.begin()

    async def run(self, per_second: int, ending: asyncio.Event) -> None:
        """As fast as the responses come: a start takes longer than a claim, so no more users."""
        await asyncio.gather(*(self._use(ending) for _ in range(min(_USERS, per_second))))

    async def _use(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            name = f"gameday-{uuid4().hex[:12]}"
            body = {"name": name, "template_id": self._template, "cpu_spec": 1, "memory_spec": 0.5}
            made = await self._do("create", name, "POST", "/sandboxes", body, key=name)
            if made is None:
                continue
            sandbox_id = made["sandbox_id"]
            self.made.append(sandbox_id)
            await self._do("start", sandbox_id, "POST", f"/sandboxes/{sandbox_id}/start")
            await self._do("stop", sandbox_id, "POST", f"/sandboxes/{sandbox_id}/stop")

    async def _do(
        self,
        kind: str,
        who: str,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str = "",
        tries: int = 240,
    ) -> Any:
        headers = {**self._headers, **({"Idempotency-Key": key} if key else {})}
        return await self.until_answered(
            kind, who, method, f"/api/v1{path}", headers=headers, body=body, tries=tries
        )

    async def audit(self) -> Sequence[Violation]:
        found = [*other_errors(self.calls, _TOLD_WELL)]
        for sandbox_id in self.made:
            found += await self._check(sandbox_id)
        if open_ones := (await self._read("usage?is_open=true"))["usage"]:
            what = f"{len(open_ones)} usages are open though nothing runs"
            found.append(Violation(Promise.BILLED_ONCE, what))
        if running := await self._await_no_supervisors():
            what = f"{running} machines run without a sandbox"
            found.append(Violation(Promise.NO_SANDBOX_LOST, what))
        return found

    async def close(self) -> None:
        for sandbox_id in self.made:
            await self._do("stop", sandbox_id, "POST", f"/sandboxes/{sandbox_id}/stop", tries=1)

    async def _check(self, sandbox_id: str) -> list[Violation]:
        """It is there, comes to rest, and its runs do not overlap in time."""
        sandbox = await self._come_to_rest(sandbox_id)
        if sandbox is None or sandbox["status"] not in _FINAL:
            state = "gone" if sandbox is None else sandbox["status"]
            return [Violation(Promise.NO_SANDBOX_LOST, f"{sandbox_id} is {state}")]
        runs = (await self._read(f"usage?sandbox_id={sandbox_id}"))["usage"]
        times = sorted((each["start_time"], each["end_time"]) for each in runs)
        overlaps = [(a, b) for (_, a), (b, _) in itertools.pairwise(times) if b < a]
        return [
            Violation(Promise.BILLED_ONCE, f"{sandbox_id} is billed twice from {b} to {a}")
            for a, b in overlaps
        ]

    async def _come_to_rest(self, sandbox_id: str) -> Any:
        """A start or stop that was cut off is completed by the server's jobs."""
        sandbox: Any = None
        for _ in range(_REST_SEC):
            sandbox = await self._read(f"sandboxes/{sandbox_id}")
            if sandbox is None or sandbox["status"] in _FINAL:
                break
            if sandbox["status"] == "running":
                await self._do("stop", sandbox_id, "POST", f"/sandboxes/{sandbox_id}/stop")
            await asyncio.sleep(1)
        return sandbox

    async def _read(self, path: str) -> Any:
        return await self.until_answered(
            "read", path, "GET", f"/api/v1/{path}", headers=self._headers, is_audit=True
        )

    async def _await_no_supervisors(self) -> int:
        running = 0
        for _ in range(_REST_SEC):
            running = await asyncio.to_thread(_supervisors, self._data_dir)
            if not running:
                break
            await asyncio.sleep(1)
        return running


def _supervisors(data_dir: Path) -> int:
    """How many machines run from this folder, whoever started them."""
    found = 0
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        of_folder = any(str(data_dir) in word for word in words)
        found += of_folder and any("supervisor" in word for word in words)
    return found
