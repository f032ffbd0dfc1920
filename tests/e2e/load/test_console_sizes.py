"""However much there is: a screen stays small, and asks its engines no more often."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.server.parts import running_parts
from sandyard.kit.observability.metrics import new_registry
from sandyard.settings import load_settings
from tests.e2e.console.people import ADMIN, open_accounts
from tests.e2e.console.screens import make_one_of_each, screens_of
from tests.e2e.console.sessions import session_of
from tests.support.platform.in_process import counted_statements
from tests.support.servers.processes import SECRETS, sandyard_serve
from tests.support.storage.large_data_dirs import Crowd

LIMIT_BYTES = 200_000
A_FEW = 3
"""Statements that go by the time, as of when something was last used."""
FEW, MANY = Crowd(pool=150, sandboxes=60, devices=120), Crowd(1500, 600, 1200)


@pytest.mark.torture
async def test_a_screen_costs_the_same_with_ten_times_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    few, many = await costs(tmp_path / "few", FEW), await costs(tmp_path / "many", MANY)
    assert len(many) == len(few) > 20
    for (path, (size, statements)), (_, more) in zip(few.items(), many.items(), strict=True):
        assert more[0] < LIMIT_BYTES, path
        assert more[0] <= size * 1.2, path  # longer numbers, and a link to the next page
        assert 0 < more[1] <= statements + A_FEW, path


async def costs(data_dir: Path, crowd: Crowd) -> dict[str, tuple[int, int]]:
    """The bytes of each screen's first view, and the statements that it took."""
    with sandyard_serve(data_dir) as server:
        open_accounts(server)
        session = session_of(server, ADMIN)
        make_one_of_each(server, session)
        paths = screens_of(session)
    await asyncio.to_thread(crowd.fill, data_dir, ADMIN)
    found: dict[str, tuple[int, int]] = {}
    async with console(data_dir, session.cookie) as client:
        for path in paths:
            await client.get(path)  # what is looked up once and kept
            with counted_statements() as statements:
                answer = (await client.get(path)).raise_for_status()
            found[path] = (len(answer.content), len(statements))
    return found


@asynccontextmanager
async def console(data_dir: Path, cookie: str) -> AsyncIterator[httpx.AsyncClient]:
    """In this process, where statements can be counted; no job runs beside it."""
    settings = load_settings()
    async with running_parts(settings, data_dir, registry := new_registry()) as parts:
        for part in parts:
            await part.prepare()
        app = create_app(settings, parts, registry=registry, in_flight=InFlight())
        transport = httpx.ASGITransport(app)
        headers = {"Cookie": cookie}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers=headers
        ) as client:
            yield client
