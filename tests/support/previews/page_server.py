"""The web files of previews on a real port, over projects whose state and trouble tests decide."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

import sandyard
from sandyard.entrypoints.server.listeners import Listener
from sandyard.kit.free_ports import free_port

WEB = Path(sandyard.__file__).parent / "previews" / "web"
START = datetime(2026, 3, 4, 12, tzinfo=UTC)
LIFE = timedelta(minutes=30)
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "frame-src http: https:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
_TYPES = {"js": "text/javascript", "css": "text/css"}
_BARE_PAGE = """<!doctype html><html lang="en"><title>Bare</title>
<script type="module" src="/previews/sandbox-status.js"></script><main></main></html>"""
_PREVIEW = """<!doctype html><html lang="en"><title>Shop</title>
<style>body{{font:1.25rem/1.6 serif;margin:3rem auto;padding:0 1rem;max-width:34rem}}</style>
<h1>Bread of the day</h1><p>Rye with caraway, out of the oven at seven.
<p>Served from {sandbox_id}.</html>"""


@dataclass(frozen=True)
class Refusal:
    """An answer in the one error shape."""

    status: int
    code: str
    message: str = "Try again later."
    retry_after: int | None = None

    def response(self) -> Response:
        error: dict[str, Any] = {"code": self.code, "message": self.message, "request_id": "req-1"}
        headers = {}
        if self.retry_after is not None:
            error["retry_after"] = self.retry_after
            headers["Retry-After"] = str(self.retry_after)
        return JSONResponse({"error": error}, status_code=self.status, headers=headers)


@dataclass
class Project:
    """One project as the provider knows it, and what was asked about it."""

    project_id: str
    ends_at: datetime | None = None
    """When its sandbox ends; None: it has none."""
    sandboxes: int = 0
    is_unknown: bool = False
    is_stale: bool = False
    message: str | None = None
    application: dict[str, Any] | None = None
    preview_url: str = ""
    checks_meet: Refusal | None = None
    syncs_meet: Refusal | None = None
    held: anyio.Event | None = None
    """Answers wait for it."""
    checks: int = 0
    syncs: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    credentials: list[tuple[str | None, str | None]] = field(default_factory=list)
    """The Authorization and Cookie headers of each call."""

    @property
    def sandbox_id(self) -> str:
        return f"sbx-{self.sandboxes:017}"


@dataclass
class PreviewServer:
    url: str
    now: datetime = START
    projects: dict[str, Project] = field(default_factory=dict)

    @property
    def preview_url(self) -> str:
        """On another origin than the page, as previews are."""
        return self.url.replace("127.0.0.1", "localhost") + "/served/"

    def add(self, project_id: str, *, runs_for: timedelta | None = None) -> Project:
        project = self.projects[project_id] = Project(project_id)
        if runs_for is not None:
            self.renew(project, runs_for)
        return project

    def renew(self, project: Project, runs_for: timedelta = LIFE) -> None:
        project.sandboxes += 1
        project.ends_at = self.now + runs_for
        project.preview_url = self.preview_url + project.sandbox_id

    def release(self) -> None:
        """Let go of every answer, for a server with one that is held never stops."""
        for project in self.projects.values():
            if project.held is not None:
                project.held.set()

    def status(self, project: Project) -> dict[str, Any]:
        status, action, message = "running", "none", "The preview is running."
        if project.is_unknown:
            status, action, message = "unknown", "retry_later", "The provider does not answer."
        elif project.ends_at is None:
            status, action, message = "not_found", "sync_needed", "There is no preview yet."
        elif project.ends_at <= self.now:
            status, action, message = "expired", "sync_needed", "The preview has ended."
        return {
            "success": True,
            "status": status,
            "stale": project.is_stale,
            "sandbox_info": self.info(project),
            "action_required": action,
            "message": project.message or message,
            "application": project.application,
        }

    def info(self, project: Project) -> dict[str, Any] | None:
        if project.ends_at is None:
            return None
        remaining = max(timedelta(0), project.ends_at - self.now)
        return {
            "sandbox_id": project.sandbox_id,
            "preview_url": project.preview_url,
            "start_time": _iso(project.ends_at - LIFE),
            "end_time": _iso(project.ends_at),
            "remaining_time_minutes": remaining // timedelta(minutes=1),
            "last_checked": _iso(self.now),
        }

    def synced(self, project: Project) -> dict[str, Any]:
        if project.ends_at is None or project.ends_at <= self.now:
            self.renew(project)
        return {
            "success": True,
            "data": {
                "projectId": project.project_id,
                "sandbox_info": self.info(project),
                "filesCount": 3,
                "version": 7,
            },
            "message": "The preview is up to date.",
        }


@asynccontextmanager
async def preview_page_server() -> AsyncIterator[PreviewServer]:
    port = free_port()
    server = PreviewServer(f"http://127.0.0.1:{port}")
    listener = Listener(_create_app(server), host="127.0.0.1", port=port)
    await listener.start()
    try:
        yield server
    finally:
        await listener.stop()


def _create_app(server: PreviewServer) -> Starlette:
    async def status(request: Request) -> Response:
        project = server.projects[request.path_params["project_id"]]
        project.checks += 1
        await _arrive(project, request)
        met = project.checks_meet
        return _at(server, met.response() if met else JSONResponse(server.status(project)))

    async def sync(request: Request) -> Response:
        project = server.projects[request.path_params["project_id"]]
        project.syncs += 1
        await _arrive(project, request)
        met = project.syncs_meet
        return _at(server, met.response() if met else JSONResponse(server.synced(project)))

    async def project(request: Request) -> Response:
        return JSONResponse({"project_id": request.path_params["project_id"], "name": "Bakery"})

    prefix = "/api/v1/projects/{project_id}"
    return Starlette(
        routes=[
            Route(prefix, project),
            Route(prefix + "/sandbox/status", status),
            Route(prefix + "/sync", sync, methods=["POST"]),
            Route("/previews/demo", _demo),
            Route("/previews/{name}", _web_file),
            Route("/bare", _bare_page),
            Route("/served/{sandbox_id}", _preview),
        ]
    )


async def _arrive(project: Project, request: Request) -> None:
    """Note the call, and keep it as long as answers are held back."""
    headers = request.headers
    project.credentials.append((headers.get("authorization"), headers.get("cookie")))
    project.in_flight += 1
    project.most_in_flight = max(project.most_in_flight, project.in_flight)
    try:
        if project.held is not None:
            await project.held.wait()
    finally:
        project.in_flight -= 1


async def _demo(_: Request) -> Response:
    return _page((WEB / "demo.html").read_text())


async def _bare_page(_: Request) -> Response:
    return _page(_BARE_PAGE)


async def _web_file(request: Request) -> Response:
    name = request.path_params["name"]
    return Response((WEB / name).read_bytes(), media_type=_TYPES[name.rpartition(".")[2]])


async def _preview(request: Request) -> Response:
    return HTMLResponse(_PREVIEW.format(**request.path_params))


def _page(content: str) -> Response:
    return HTMLResponse(content, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY})


def _at(server: PreviewServer, response: Response) -> Response:
    response.headers["Date"] = format_datetime(server.now, usegmt=True)
    return response


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
