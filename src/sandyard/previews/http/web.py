"""The web component and the page that shows it at work."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse

from sandyard.kit.http.on_demand import OnDemandRoute

_FOLDER = Path(__file__).parents[1] / "web"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "frame-src http: https:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_TYPES = {".js": "text/javascript", ".html": "text/html", ".css": "text/css"}
_NAMES = (
    "demo.html",
    "demo.js",
    "demo.css",
    "sandbox-status.js",
    "sandbox-status-activity.js",
    "sandbox-status-requests.js",
    "sandbox-status-token.js",
    "sandbox-status-view.js",
)


def create_web_router() -> APIRouter:
    router = APIRouter(route_class=OnDemandRoute)
    for name in _NAMES:
        path = f"/previews/{name.removesuffix('.html')}"
        router.add_api_route(path, _serving(_FOLDER / name), include_in_schema=False)
    return router


def _serving(file: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def serve() -> FileResponse:
        headers = {
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-cache",
        }
        if file.name.startswith("sandbox-status"):  # front ends of other origins may import it
            headers["Access-Control-Allow-Origin"] = "*"
        return FileResponse(file, media_type=_TYPES[file.suffix], headers=headers)

    return serve
