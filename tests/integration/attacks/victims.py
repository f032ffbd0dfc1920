"""An account with an API key and a running sandbox, made as E2B's SDKs do."""

import base64
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from tests.support.platform.in_process import PASSWORD, Caller, PlatformApi


@dataclass(frozen=True, slots=True)
class Victim:
    api: PlatformApi
    owner: Caller
    admin: Caller
    key: dict[str, Any]
    sandbox: dict[str, Any]

    @property
    def sandbox_id(self) -> str:
        return str(self.sandbox["sandboxID"])

    @property
    def headers(self) -> dict[str, str]:
        """Of an SDK's calls to the sandbox."""
        token = self.sandbox["envdAccessToken"]
        return {"E2b-Sandbox-Id": self.sandbox_id, "X-Access-Token": token}

    async def inside(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = self.headers | options.pop("headers", {})
        return await self.api.client.request(method, f"/e2b{path}", headers=headers, **options)

    def link(self, path: str) -> str:
        """A signed link to a file, as SDKs make them."""
        text = f"{path}:read:user:{self.sandbox['envdAccessToken']}"
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        return f"/files?path={path}&username=user&signature=v1_{digest.replace('+', '%2B')}"

    @asynccontextmanager
    async def stream(self, call: str, message: Any) -> AsyncIterator[httpx.Response]:
        body = orjson.dumps(message)
        framed = b"\0" + len(body).to_bytes(4, "big") + body
        headers = self.headers | {"Content-Type": "application/connect+json"}
        url = f"/e2b/{call}"
        async with self.api.client.stream("POST", url, content=framed, headers=headers) as answer:
            yield answer

    async def delete_key(self) -> None:
        await self.api.call("DELETE", f"/api-keys/{self.key['key_id']}", self.owner)

    async def log_out(self) -> None:
        await self.api.call("POST", "/auth/logout", self.owner)

    async def change_password(self) -> None:
        body = {"current_password": PASSWORD, "new_password": f"{PASSWORD}-2"}
        answer = await self.api.call("POST", "/auth/password/change", self.owner, json=body)
        assert answer.is_success, answer.text

    async def control(self, method: str, path: str = "", **options: Any) -> httpx.Response:
        """A call of the SDK about the sandbox, with the key."""
        headers = {"X-API-Key": self.key["api_key"]}
        url = f"/e2b/sandboxes/{self.sandbox_id}{path}"
        answer = await self.api.client.request(method, url, headers=headers, **options)
        assert answer.is_success, answer.text
        return answer

    async def pause(self) -> None:
        await self.control("POST", "/pause", json={})

    async def resume(self) -> dict[str, Any]:
        answer = await self.control("POST", "/connect", json={"timeout": 600})
        return dict(answer.json())

    async def be_stopped(self) -> None:
        await self.api.post(f"/sandboxes/{self.sandbox_id}/stop", self.owner)

    async def be_ended_by_an_admin(self) -> None:
        path = f"/admin/sandboxes/{self.sandbox_id}/end"
        await self.api.post(path, self.admin, {"reason": "abuse"})

    async def be_deactivated(self) -> None:
        await self.api.post(f"/admin/users/{self.owner.account_id}/deactivate", self.admin)


async def victim_of(api: PlatformApi, owner: Caller, admin: Caller, **fields: Any) -> Victim:
    new_key = {"name": f"sdk {len(fields)}", "scope": "run", "format": "e2b"}
    key = await api.post("/api-keys", owner, new_key)
    body = {"templateID": "base", "timeout": 3600, **fields}
    headers = {"X-API-Key": key["api_key"]}
    made = await api.client.post("/e2b/v2/sandboxes", json=body, headers=headers)
    assert made.status_code == 201, made.text
    return Victim(api, owner, admin, key, made.json())
