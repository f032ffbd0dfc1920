"""Settings of previews, each by what it changes."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from sandyard.bootstrap.previews import open_e2b_provider, open_provider
from sandyard.previews.providers.local import LocalPreviewProvider
from sandyard.previews.providers.remote import RemotePreviewProvider
from sandyard.previews.stores.tables import OLD_COLUMNS
from sandyard.runtime.remote.backoff import Backoff
from sandyard.settings import load_settings
from tests.support.e2b.double import API_KEY, E2bDouble, e2b_double
from tests.support.platform.in_process import Caller, code_of
from tests.support.previews.in_process import PreviewApi, preview_api
from tests.support.previews.providers import create


@pytest.fixture
async def double() -> AsyncIterator[E2bDouble]:
    async with e2b_double() as double:
        yield double


async def refusal(api: PreviewApi, caller: Caller, **files: str) -> tuple[int, str]:
    project = await api.project(caller)
    body = {"files": [{"path": path, "content": text} for path, text in files.items()]}
    return code_of(await api.call("PUT", f"/projects/{project}/files", caller, json=body))


async def test_preview_max_files_and_bytes(tmp_path: Path, double: E2bDouble) -> None:
    async with preview_api(
        None, tmp_path, double, preview_max_files=2, preview_max_bytes=10
    ) as api:
        ann = await api.account()
        await api.project(ann, a="12345", b="67890")
        assert await refusal(api, ann, a="", b="", c="") == (400, "FILES_LIMIT_EXCEEDED")
        assert await refusal(api, ann, a="12345", b="678901") == (400, "FILES_LIMIT_EXCEEDED")


async def test_preview_reads(tmp_path: Path, double: E2bDouble) -> None:
    """Of a database that has the old columns, with other contents."""
    async with preview_api(None, tmp_path, double) as api:
        ann = await api.account()
        project = await api.project(ann, **{"index.html": "hello"})
        await api.sync(ann, project)
        for name in OLD_COLUMNS:
            add = sa.text(f"ALTER TABLE previews.previews ADD COLUMN {name} TEXT DEFAULT 'old'")
            await api.previews.database.write(partial(_execute, statement=add))
    for reads, status in {"new": "running", "old": "expired"}.items():
        async with preview_api(None, tmp_path, double, preview_reads=reads) as api:
            assert (await api.status(ann, project))["status"] == status


def _execute(connection: sa.Connection, statement: sa.TextClause) -> None:
    connection.execute(statement)


async def test_preview_install_sec(
    double: E2bDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of previews here and at E2B."""
    monkeypatch.setenv("PREVIEW_INSTALL_SEC", "7.5")
    monkeypatch.setenv("E2B_API_KEY", API_KEY)
    async with preview_api(None, tmp_path, double) as api:
        for provider in ("local", "e2b"):
            monkeypatch.setenv("PREVIEW_PROVIDER", provider)
            opened = open_provider(load_settings(), api.part)
            assert isinstance(opened, LocalPreviewProvider | RemotePreviewProvider)
            assert opened.install_sec == 7.5


async def test_e2b_template(double: E2bDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "E2B_API_KEY": API_KEY,
        "E2B_API_URL": double.url,
        "E2B_SANDBOX_URL": double.url,
        "E2B_TEMPLATE": "mine",
    }.items():
        monkeypatch.setenv(name, value)
    provider = open_e2b_provider(load_settings().e2b, double.pool(Backoff()))
    await create(provider)
    await provider.close()
    assert [box.template for box in double.boxes] == ["mine"]
