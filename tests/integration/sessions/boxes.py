"""A running sandbox, as its owner calls it."""

from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.platform.in_process import Caller, PlatformApi


@dataclass(frozen=True, slots=True)
class Box:
    api: PlatformApi
    owner: Caller
    sandbox: dict[str, Any]

    @property
    def path(self) -> str:
        return f"/sandboxes/{self.sandbox['sandbox_id']}"

    async def call(self, method: str, path: str, **options: Any) -> httpx.Response:
        return await self.api.call(method, f"{self.path}{path}", self.owner, **options)

    async def ask(self, method: str, path: str, **options: Any) -> Any:
        """The body of a call that must succeed."""
        answer = await self.call(method, path, **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def run(self, command: str | list[str], **fields: Any) -> Any:
        return await self.ask("POST", "/commands", json={"command": command, **fields})

    async def write(self, path: str, content: bytes) -> Any:
        return await self.ask("PUT", "/files", params={"path": path}, content=content)

    async def read(self, path: str, **headers: str) -> bytes:
        answer = await self.call("GET", "/files", params={"path": path}, headers=headers)
        assert answer.is_success, answer.text
        return answer.content
