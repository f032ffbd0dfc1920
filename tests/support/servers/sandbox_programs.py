"""The programs of sandboxes and previews: through the gateway, or past it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from sandyard.runtime.model import Kind, Running
from sandyard.runtime.ports import Runtime
from tests.support.runtime.runtimes import local_runtime, page_of_run


class ApiCaller(Protocol):
    url: str

    def call(self, method: str, path: str, body: Any = None, *, expect: int = 200) -> Any: ...


def tokens_path(preview_url: str) -> str:
    """The API path that makes access tokens for this URL."""
    label = urlsplit(preview_url).netloc.partition(".")[0]
    target_id = label.partition("-")[2]
    noun = "sandboxes" if target_id.startswith("sbx") else "projects"
    return f"/{noun}/{target_id}/tokens"


def page_of(
    person: ApiCaller, preview_url: str, path: str = "/", *, method: str = "GET", **options: Any
) -> httpx.Response:
    """What an account that may open it sees there, of a server on this machine."""
    token = person.call("POST", tokens_path(preview_url), {}, expect=201)["token"]
    headers = {"Host": urlsplit(preview_url).netloc, "X-Access-Token": token}
    return httpx.request(method, person.url + path, headers=headers, timeout=20, **options)


@dataclass(frozen=True, slots=True)
class FoundProgram:
    """A running program, reached through the runtime; needs no server."""

    runtime: Runtime
    running: Running

    async def page(self) -> httpx.Response:
        """Raises httpx.TransportError if it does not answer."""
        return await page_of_run(self.runtime, self.running)

    def get(self) -> httpx.Response:
        return asyncio.run(self.page())


async def find_program(data_dir: Path, target_id: str, kind: Kind = "sandbox") -> FoundProgram:
    runtime = local_runtime(data_dir / "runtime")
    runs = await runtime.list_runs(kind)
    [running] = [each for each in runs if isinstance(each, Running) and each.run_id.id == target_id]
    return FoundProgram(runtime, running)
