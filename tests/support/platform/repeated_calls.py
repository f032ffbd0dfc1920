"""The calls that make something, as the tests of idempotency keys repeat them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.platform.in_process import Caller, PlatformApi


@dataclass(frozen=True, slots=True)
class RepeatedCall:
    """`listing` has what the calls have made; `changed` is another body of the same call."""

    operation: str
    path: str
    body: Mapping[str, Any]
    listing: str = ""
    changed: Mapping[str, Any] = field(default_factory=dict)
    finds_made: bool = True

    @property
    def another(self) -> Mapping[str, Any]:
        return {**self.body, **(self.changed or {"name": "another"})}

    async def send(
        self, api: PlatformApi, caller: Caller, key: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        sent = self.body if body is None else body
        headers = caller.headers | {"Idempotency-Key": key}
        return await api.client.post(self.path, json=sent, headers=headers)

    async def count(self, api: PlatformApi, caller: Caller) -> int:
        """How many things of this kind the caller has."""
        answer = await api.client.get(self.listing or self.path, headers=caller.headers)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        if isinstance(body, dict):
            [body] = [value for key, value in body.items() if key != "next_cursor"]
        return len(body)


def platform_calls(template_id: str) -> list[RepeatedCall]:
    api = "/api/v1"
    template = {
        "name": "mine",
        "category": "web",
        "language": "go",
        "repository_url": "https://example.com/mine.git",
    }
    sandbox = {"name": "box", "template_id": template_id, "cpu_spec": 1, "memory_spec": 0.5}
    return [
        RepeatedCall("create_project", f"{api}/projects", {"name": "mine"}),
        RepeatedCall(
            "create_template", f"{api}/templates", template, f"{api}/templates?visibility=private"
        ),
        RepeatedCall("create_api_key", f"{api}/api-keys", {"name": "mine", "format": "e2b"}),
        RepeatedCall("create_sandbox", f"{api}/sandboxes", sandbox),
        RepeatedCall("create_volume", f"{api}/volumes", {"name": "mine", "size_gb": 0.01}),
        RepeatedCall(
            "pull_image",
            f"{api}/images",
            {"reference": "registry.invalid/mine:1"},
            changed={"reference": "registry.invalid/another:1"},
        ),
        RepeatedCall(
            "broadcast_notification",
            f"{api}/admin/notifications",
            {"title": "Soon", "message": "Down at nine."},
            f"{api}/notifications",
            {"title": "Later"},
            finds_made=False,
        ),
    ]


def sandbox_calls(running: str) -> list[RepeatedCall]:
    """`running` is a sandbox of the caller's."""
    one, more = f"/e2b/sandboxes/{running}", {"metadata": {"a": "b"}}
    sandbox = {"templateID": "base", "timeout": 60}
    return [
        RepeatedCall(
            "run_command",
            f"/api/v1/sandboxes/{running}/commands",
            {"command": "true", "background": True},
            changed={"command": "false"},
            finds_made=False,
        ),
        RepeatedCall("POST /volumes", "/e2b/volumes", {"name": "mine"}),
        RepeatedCall("POST /sandboxes", "/e2b/sandboxes", sandbox, "/e2b/v2/sandboxes", more),
        RepeatedCall("POST /v2/sandboxes", "/e2b/v2/sandboxes", sandbox, changed=more),
        RepeatedCall(
            "POST /sandboxes/{sandbox}/snapshots", f"{one}/snapshots", {}, "/e2b/snapshots"
        ),
        RepeatedCall(
            "POST /sandboxes/{sandbox}/fork",
            f"{one}/fork",
            {"count": 1, "timeout": 60},
            "/e2b/v2/sandboxes",
            {"count": 2},
        ),
    ]
