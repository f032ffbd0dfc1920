"""Users who sync their projects, at a provider whose sandboxes are counted all the time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.processes import log_in
from sandyard.tools.gameday.promises import NO_ANSWER, Violation, other_errors
from sandyard.tools.gameday.workload import RETRY_SEC, Workload

_PROJECTS = 3
_CALLERS = 2
_TOLD_WELL = {"sync": {200, 409, 503, NO_ANSWER}}


class Projects(Workload):
    """Each project is synced by several callers at once, again and again."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        urls: Sequence[str],
        data_dir: Path,
        provider: str,
        api_key: str,
    ) -> None:
        """`provider` is the address of E2B's API, not through the connection that breaks."""
        super().__init__(client, urls)
        self._data_dir = data_dir
        self._provider = provider
        self._api_key = api_key
        self._headers: Mapping[str, str] = {}
        self._projects: list[str] = []
        self._doubled: dict[str, int] = {}

    async def prepare(self) -> None:
        self._headers = await log_in(self._client, self._urls[0], self._data_dir)
        for number in range(_PROJECTS):
            made = await self._write("POST", "/projects", {"name": f"site-{number}"})
            project = made["project_id"]
            files = {"files": [{"path": "index.html", "content": f"hello {number}"}]}
            await self._write("PUT", f"/projects/{project}/files", files)
            self._projects.append(project)
        self.begin()

    async def _write(self, method: str, path: str, body: Any) -> Any:
        url = f"{self._urls[0]}/api/v1{path}"
        answer = await self._client.request(method, url, headers=self._headers, json=body)
        return answer.raise_for_status().json()

    async def run(self, per_second: int, ending: asyncio.Event) -> None:
        projects = self._projects * min(_CALLERS, per_second)
        callers = [self._sync(each, ending) for each in projects]
        await asyncio.gather(self._count(ending), *callers)

    async def _sync(self, project: str, ending: asyncio.Event) -> None:
        while not ending.is_set():
            await self._sync_once(project)
            await asyncio.sleep(RETRY_SEC)

    async def _sync_once(self, project: str, *, tries: int = 1) -> Any:
        path = f"/api/v1/projects/{project}/sync"
        return await self.until_answered(
            "sync", project, "POST", path, headers=self._headers, tries=tries
        )

    async def _count(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            for project, number in (await self._at_provider()).items():
                self._doubled[project] = max(number, self._doubled.get(project, 0))
            await asyncio.sleep(RETRY_SEC)

    async def _at_provider(self) -> Counter[str]:
        return Counter(each["metadata"]["project_id"] for each in await self._sandboxes())

    async def _sandboxes(self) -> Any:
        url = f"{self._provider}/v2/sandboxes"
        answer = await self._client.get(url, headers={"X-API-Key": self._api_key})
        return answer.raise_for_status().json()

    async def close(self) -> None:
        """End the sandboxes at the provider, which would outlive its server."""
        for each in await self._sandboxes():
            url = f"{self._provider}/sandboxes/{each['sandboxID']}"
            await self._client.delete(url, headers={"X-API-Key": self._api_key})

    async def audit(self) -> Sequence[Violation]:
        found = [*other_errors(self.calls, _TOLD_WELL)]
        for project in self._projects:
            synced = await self._sync_once(project, tries=120)
            if synced is None or not synced["success"]:
                what = f"{project} can't be synced after the fault: {synced}"
                found.append(Violation(Promise.PREVIEW_BACK, what))
        last = await self._at_provider()
        for project in self._projects:
            most = max(last[project], self._doubled.get(project, 0))
            if most > 1:
                what = f"{project} had {most} sandboxes at the provider"
                found.append(Violation(Promise.ONE_PREVIEW, what))
            if last[project] != 1:
                what = f"{project} has {last[project]} sandboxes at the end"
                found.append(Violation(Promise.PREVIEW_BACK, what))
        return found
