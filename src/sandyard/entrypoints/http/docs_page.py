"""`/docs`, without internet access and with a content security policy."""

import base64
import hashlib
import re

from fastapi import FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi_offline import FastAPIOffline
from starlette.responses import HTMLResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_ASSETS = "/docs-assets"
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
# Swagger UI's markup has inline styles; only its own scripts and the page's are allowed.
_POLICY = (
    "default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


def create_bare_app(*, title: str, version: str, summary: str) -> FastAPI:
    """An application with only `/docs` and `/openapi.json`."""
    app = FastAPIOffline(
        docs_url=None,
        redoc_url=None,
        static_url=_ASSETS,
        redirect_slashes=False,
        title=title,
        version=version,
        summary=summary,
    )
    [assets] = [route for route in app.routes if isinstance(route, Mount)]
    assets.app = _cacheable(assets.app)
    app.add_api_route("/docs", _show_docs, include_in_schema=False, response_class=HTMLResponse)
    return app


async def _show_docs(request: Request) -> HTMLResponse:
    root = request.scope.get("root_path", "")
    page = get_swagger_ui_html(
        openapi_url=f"{root}{request.app.openapi_url}",
        title=f"{request.app.title} - Swagger UI",
        swagger_js_url=f"{root}{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{root}{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{root}{_ASSETS}/favicon.png",
    )
    page.headers["Content-Security-Policy"] = _policy_of(bytes(page.body))
    return page


def _policy_of(page: bytes) -> str:
    digests = (hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(page))
    hashes = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in digests)
    return _POLICY.format(hashes=hashes)


def _cacheable(app: ASGIApp) -> ASGIApp:
    """The same files, cacheable by browsers with revalidation."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_cacheable(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"cache-control", b"no-cache")]
            await send(message)

        await app(scope, receive, send_cacheable)

    return serve
