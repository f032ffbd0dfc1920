"""The OpenAPI document, from which clients are generated, and `/docs`, which needs no internet."""

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import orjson
from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.responses import HTMLResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandyard.kit.http.schemas import EXAMPLE, ErrorAnswer
from sandyard.kit.http.security import SCHEMES

_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document with our operation ids, security schemes and examples, and without the 422
    that it adds to every call: malformed requests get a 400 here."""
    if app.openapi_schema is None:
        for route in app.routes:
            if isinstance(route, APIRoute):
                route.operation_id = route.operation_id or route.name
        document = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        for operation in _operations(document):
            operation["responses"].pop("422", None)
        document["components"]["securitySchemes"] = _security_schemes(document)
        document["components"]["schemas"] |= _error_schemas()
        _drop_unused_schemas(document)
        for schema in document["components"]["schemas"].values():
            if EXAMPLE in schema:
                schema["examples"] = [orjson.loads(schema.pop(EXAMPLE))]
        app.openapi_schema = document
    return app.openapi_schema


def joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """One document of two, of parts in different processes."""
    first, second = one["components"], other["components"]
    return {
        **one,
        "paths": {**one["paths"], **other["paths"]},
        "components": {
            "schemas": dict(sorted({**first["schemas"], **second["schemas"]}.items())),
            "securitySchemes": dict(
                sorted({**first["securitySchemes"], **second["securitySchemes"]}.items())
            ),
        },
    }


def _security_schemes(document: Mapping[str, Any]) -> dict[str, Any]:
    """Collected from the operations, which carry the schemes that their part declared."""
    found: dict[str, Any] = {}
    for operation in _operations(document):
        found |= operation.pop(SCHEMES, {})
    return dict(sorted(found.items()))


def _error_schemas() -> dict[str, Any]:
    """The schemas that `errors` of the routes refers to."""
    schema = ErrorAnswer.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = {**schema.pop("$defs"), ErrorAnswer.__name__: schema}
    return cast("dict[str, Any]", jsonable_encoder(schemas, exclude_none=True))


def _drop_unused_schemas(document: Mapping[str, Any]) -> None:
    """Those left over from the 422, and inlined enums."""
    schemas = document["components"]["schemas"]
    while unused := schemas.keys() - set(_REFERENCE.findall(orjson.dumps(document).decode())):
        for name in unused:
            del schemas[name]


def _operations(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for path in document["paths"].values():
        yield from path.values()


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
