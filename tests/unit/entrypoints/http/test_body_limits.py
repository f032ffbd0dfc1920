"""Bodies have the limits of the settings."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry

from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.routes import StreamedRoute
from sandyard.settings import load_settings


async def upload(*chunks: bytes, pause_sec: float = 0, kind: type[APIRoute] = StreamedRoute) -> int:
    """The status of an upload to a server with the settings of the environment."""
    router = APIRouter(route_class=kind)

    @router.put("/files", openapi_extra={"security": []})
    async def store(request: Request) -> int:
        return len(await request.body())

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
            await asyncio.sleep(pause_sec)

    part: Any = SimpleNamespace(name="files", routers=[router])
    app = create_app(load_settings(), [part], registry=CollectorRegistry(), in_flight=InFlight())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        return (await client.put("http://test/files", content=body())).status_code


async def test_max_upload_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_UPLOAD_BYTES", "10")
    assert await upload(b"12345", b"67890") == 200
    assert await upload(b"12345", b"67890", b"1") == 413


async def test_max_body_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of calls whose bodies are not streamed."""
    monkeypatch.setenv("MAX_BODY_BYTES", "1024")
    assert await upload(b"1" * 1024, kind=OnDemandRoute) == 200
    assert await upload(b"1" * 1024, b"1", kind=OnDemandRoute) == 413


async def test_upload_timeout_sec(monkeypatch: pytest.MonkeyPatch) -> None:
    """For each chunk."""
    assert await upload(b"12345", b"67890", pause_sec=0.5) == 200
    monkeypatch.setenv("UPLOAD_TIMEOUT_SEC", "0.1")
    assert await upload(b"12345", b"67890", pause_sec=0.5) == 400
