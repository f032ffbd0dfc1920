"""The OpenAPI document, from which clients are generated."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import orjson
from fastapi import FastAPI
from fastapi.encoders import jsonable_encoder
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from sandyard.kit.http.error_answers import ErrorAnswer
from sandyard.kit.http.schemas import EXAMPLE
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
