"""A preview at the real E2B, by a key: `make test-real-e2b E2B_API_KEY=…`.

It makes one sandbox of the template `base`, and ends it."""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import httpx
import pytest

from sandyard.bootstrap.previews import open_e2b_provider
from sandyard.previews.errors import SandboxGoneError
from sandyard.previews.providers.remote import RemotePreviewProvider
from sandyard.runtime.remote.backoff import Backoff
from sandyard.runtime.remote.http import HttpPool
from sandyard.settings import E2bSettings
from tests.support.previews.providers import PAGE, create, until_gone

pytestmark = [pytest.mark.real_e2b, pytest.mark.timeout(600)]
_NAMES = ("E2B_API_KEY", "E2B_DOMAIN", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_TEMPLATE")


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemotePreviewProvider]:
    assert os.environ.get("E2B_API_KEY"), "make test-real-e2b E2B_API_KEY=…"
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)  # E2B's certificate is a public one
    chosen = {name.lower(): os.environ[name] for name in _NAMES if name in os.environ}
    pool = HttpPool(Backoff())
    provider = open_e2b_provider(E2bSettings.model_validate(chosen), pool)
    yield provider
    await provider.close()
    await pool.close()


async def shown(url: str, wanted: str) -> None:
    """Waits until the preview's address shows it, as a browser gets it: names that end with
    `.localhost`, as of a server of ours, are this machine."""
    address = httpx.URL(url)
    headers = {"Host": address.netloc.decode()}
    if address.host.endswith(".localhost"):
        address = address.copy_with(host="127.0.0.1")
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while (await client.get(address, headers=headers, timeout=20)).text != wanted:
            await asyncio.sleep(0.5)


async def test_a_preview_lives_at_the_real_e2b(provider: RemotePreviewProvider) -> None:
    attempt, project_id = uuid4().hex, f"prj-{uuid4().hex[:17]}"
    made = await create(provider, attempt, PAGE, project_id=project_id, ttl=timedelta(minutes=5))
    try:
        await shown(made.preview_url, "<h1>one</h1>")
        assert await provider.get(made.sandbox_id) == made
        assert await provider.end_time(made.sandbox_id) == made.end_time
        found = await provider.find_attempt(project_id=project_id, attempt=attempt)
        assert found is not None
        assert found.sandbox_id == made.sandbox_id
        assert await provider.find_attempt(project_id=project_id, attempt="another") is None
        application = await provider.application(made.sandbox_id)
        assert application is not None
        assert (application.phase, application.kind) == ("running", "static")

        edited = {"index.html": b"<h1>two</h1>"}
        await provider.write_files(made.sandbox_id, written=edited, deleted=["never-was.html"])
        await shown(made.preview_url, "<h1>two</h1>")
        failing = {"Procfile": b"web: echo broken; exit 3\n"}
        await provider.write_files(made.sandbox_id, written=failing, deleted=[])
        async with asyncio.timeout(60):
            while (application := await provider.application(made.sandbox_id)) is None or (
                application.phase != "failed"
            ):
                await asyncio.sleep(0.5)
        assert application.exit_code == 3
        assert "broken" in await provider.log(made.sandbox_id, lines=20)
    finally:
        await provider.kill(made.sandbox_id)
    await until_gone(provider, made.sandbox_id)
    with pytest.raises(SandboxGoneError):
        await provider.end_time(made.sandbox_id)
    assert await provider.find_attempt(project_id=project_id, attempt=attempt) is None
