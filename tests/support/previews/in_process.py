"""Previews in this process, on a real engine, with the real SDK of E2B against its double."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from prometheus_client import CollectorRegistry

from sandyard.bootstrap.addresses import sandbox_domain
from sandyard.bootstrap.previews import PreviewsPart, build_previews
from sandyard.entrypoints.http.api import create_app
from sandyard.entrypoints.http.middleware import InFlight
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.wiring.part import PlatformPart
from sandyard.previews.files import FileLimits
from sandyard.previews.ports import PreviewProvider
from sandyard.previews.project_files import FilePolicy, ProjectFiles
from sandyard.previews.service import PreviewPolicy, Previews
from sandyard.previews.stores.sql import SqlPreviewStore
from sandyard.runtime.e2b.control import E2bTimeouts
from tests.support.clocks import RunningClock
from tests.support.e2b.double import API_KEY, E2bDouble
from tests.support.platform.in_process import (
    CHEAP_PASSWORDS,
    Caller,
    PlatformApi,
    platform_settings,
)
from tests.support.previews.providers import connect_to

PATIENCE_SEC = 20
"""How long a status waits for the provider: a busy machine makes nothing stale."""
QUICK = E2bTimeouts(request_sec=2, create_sec=6, files_sec=6)


@dataclass(slots=True)
class PreviewApi(PlatformApi):
    previews: PreviewsPart = None  # type: ignore[assignment]

    async def project(self, caller: Caller, **files: str) -> str:
        """The id of a project with these files."""
        body = {"name": f"project {uuid4()}"}
        project = await self.post("/projects", caller, body)
        if files:
            await self.put_files(caller, project["project_id"], files)
        return str(project["project_id"])

    async def put_files(
        self, caller: Caller, project_id: str, files: dict[str, str], *deleted: str
    ) -> int:
        body = {
            "files": [{"path": path, "content": text} for path, text in files.items()],
            "deleted": list(deleted),
        }
        answer = await self.call("PUT", f"/projects/{project_id}/files", caller, json=body)
        assert answer.status_code == 200, answer.text
        return int(answer.json()["version"])

    async def status(self, caller: Caller, project_id: str) -> dict[str, Any]:
        body: dict[str, Any] = await self.get(f"/projects/{project_id}/sandbox/status", caller)
        return body

    async def sync(self, caller: Caller, project_id: str) -> dict[str, Any]:
        body: dict[str, Any] = await self.post(f"/projects/{project_id}/sync", caller)
        return body


@asynccontextmanager
async def preview_api(
    url: str | None,
    data_dir: Path,
    double: E2bDouble,
    *,
    api_key: str = API_KEY,
    attempt_sec: float = 60,
    clock: RunningClock | None = None,
    provider: PreviewProvider | None = None,
    answer_within_sec: float = PATIENCE_SEC,
    **previews_settings: Any,
) -> AsyncIterator[PreviewApi]:
    clock = clock or RunningClock()
    settings = platform_settings(url)
    chosen = {"preview_attempt_sec": attempt_sec, "previews_per_account": 3} | previews_settings
    object.__setattr__(settings, "previews", settings.previews.model_copy(update=chosen))
    platform = PlatformPart(
        settings,
        data_dir=data_dir,
        url_of=sandbox_domain(settings).url_of,
        clock=clock,
        passwords=Argon2Passwords(**CHEAP_PASSWORDS),
    )
    provider = provider or connect_to(double, api_key, QUICK)
    previews = build_previews(
        settings,
        platform,
        data_dir=data_dir,
        clock=clock,
        provider=provider,
        answer_within_sec=answer_within_sec,
    )
    app = create_app(
        settings, [platform, previews], registry=CollectorRegistry(), in_flight=InFlight()
    )
    transport = httpx.ASGITransport(app)
    try:
        await platform.prepare()
        await previews.prepare()
        async with httpx.AsyncClient(
            transport=transport, base_url="http://test", timeout=60
        ) as client:
            yield PreviewApi(platform, app, client, clock, data_dir, previews=previews)
    finally:
        await previews.close()
        await platform.close()


def another_replica(
    api: PreviewApi, provider: PreviewProvider, *, store: SqlPreviewStore | None = None
) -> Previews:
    return Previews(
        store or SqlPreviewStore(api.previews.database),
        provider,
        api.part.projects,
        api.part.administration,
        clock=api.clock,
        policy=PreviewPolicy(ttl=timedelta(minutes=30), per_account=3, wait_sec=0.5),
    )


def files_over(api: PreviewApi, store: SqlPreviewStore) -> ProjectFiles:
    policy = FilePolicy(FileLimits(100, 10**6))
    return ProjectFiles(store, api.part.projects, clock=api.clock, policy=policy)


def minutes(number: float) -> float:
    return timedelta(minutes=number).total_seconds()
