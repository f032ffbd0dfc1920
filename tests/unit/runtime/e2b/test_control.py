"""E2B's control API: where it is, and what its responses do not say."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest

from sandyard.bootstrap.previews import open_e2b_provider
from sandyard.previews.errors import ProviderTroubleError
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.settings import load_settings

SANDBOX = {
    "sandboxID": "abc",
    "startedAt": "2026-01-01T00:00:00Z",
    "endAt": "2026-01-01T01:00:00Z",
    "metadata": {},
}


class Content(BytesIO):
    async def read(self, size: int) -> bytes:  # type: ignore[override]
        return super().read(size)


@dataclass
class Response:
    status: int
    content: Content
    headers: Mapping[str, str] = field(default_factory=dict)

    async def __aenter__(self) -> "Response":
        return self

    async def __aexit__(self, *_: object) -> None:
        return None


class RecordedPool(HttpPool):
    """Responds to each call to the control API with the same, and keeps the URLs."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(Backoff())
        self.urls: list[str] = []
        self._status, self._content = status, content

    @property
    def session(self) -> Any:
        return self

    async def request(self, _method: str, url: str, **_: Any) -> Response:
        self.urls.append(url)
        if url.endswith("/files"):
            return Response(401, Content(b"{}"))
        return Response(self._status, Content(self._content))


@pytest.mark.parametrize(
    ("variables", "api", "sandbox"),
    [
        ({}, "https://api.e2b.app", "https://49983-abc.e2b.app"),
        ({"E2B_DOMAIN": ""}, "https://api.e2b.app", "https://49983-abc.e2b.app"),
        ({"E2B_DOMAIN": "box.test:8443"}, "https://api.box.test:8443", None),
        (
            {"E2B_DOMAIN": "box.test", "E2B_API_URL": "http://other:1"},
            "http://other:1",
            "https://49983-abc.box.test",
        ),
        (
            {"E2B_DOMAIN": "box.test", "E2B_SANDBOX_URL": "http://other:1"},
            "https://api.box.test",
            "http://other:1",
        ),
    ],
)
async def test_the_control_api_and_the_sandboxes_are_at_the_domain_unless_their_urls_are_set(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], api: str, sandbox: str | None
) -> None:
    for name, value in {"E2B_API_KEY": "e2b_key", **variables}.items():
        monkeypatch.setenv(name, value)
    pool = RecordedPool(200, json.dumps(SANDBOX).encode())
    provider = open_e2b_provider(load_settings().e2b, pool)
    found = await provider.get("abc")
    domain = variables.get("E2B_DOMAIN") or "e2b.app"
    assert found.preview_url.partition("://")[2] == f"8080-abc.{domain}"
    with pytest.raises(ProviderTroubleError):
        await provider.write_files("abc", written={"a": b""}, deleted=[])
    expected = [f"{api}/sandboxes/abc", f"{api}/v2/sandboxes/abc/connect"]
    assert pool.urls[:2] == expected
    assert pool.urls[2] == f"{sandbox or f'https://49983-abc.{domain}'}/files"


@pytest.mark.parametrize("status", [404, 500])
async def test_a_page_that_is_not_json_does_not_say_that_a_sandbox_is_gone(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("E2B_API_KEY", "e2b_key")
    provider = open_e2b_provider(load_settings().e2b, RecordedPool(status, b"<h1>Oops</h1>"))
    for call in (provider.get, provider.kill):
        with pytest.raises(ProviderTroubleError) as raised:
            await call("abc")
        assert raised.value.code == "PREVIEW_PROVIDER_UNAVAILABLE"
