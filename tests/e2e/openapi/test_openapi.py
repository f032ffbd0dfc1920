"""The API's own document is valid and complete."""

import json
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import httpx
import pytest
import schemathesis

from sandyard.kit.patterns import has_words
from sandyard.platform.http.fields import _AMOUNT
from sandyard.settings import load_settings
from tests.support.documents.documented_calls import (
    ADMIN,
    ANY_CALL,
    BEARER_OF,
    DEVICE,
    METRICS,
    OPERATOR,
    PROMISED,
    TRACK,
    operations_of,
)
from tests.support.servers.processes import ServerProcess

WHERE: dict[str, tuple[str, ...]] = {
    TRACK: ("BROKER_API_TOKEN", "secrets/broker_api_token"),
    ADMIN: ("BROKER_ADMIN_TOKEN", "secrets/broker_admin_token"),
    OPERATOR: ("TELEMETRY_ADMIN_TOKEN", "secrets/telemetry_admin_token"),
    METRICS: ("METRICS_TOKEN",),
    DEVICE: ("POST /telemetry/v1/api-keys",),
    BEARER_OF[DEVICE]: ("POST /telemetry/v1/api-keys",),
    "Login": ("POST /api/v1/auth/login",),
    "AccountKey": ("POST /api/v1/api-keys",),
}
"""Where each credential comes from."""
OWN_WORDS = {f"^{_AMOUNT}$"}
"""Patterns that only describe; the check behind them has words of its own."""


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(document).validate()


def test_the_check_of_the_document_refuses_one_that_is_not_valid(document: dict[str, Any]) -> None:
    broken = {**document, "paths": {"/v1/allocate": {"post": {"responses": []}}}}
    with pytest.raises(Exception, match="is not of type"):
        schemathesis.openapi.from_dict(broken).validate()


def test_no_call_documents_the_status_that_is_never_given(document: dict[str, Any]) -> None:
    assert [call for call, o in operations_of(document).items() if "422" in o["responses"]] == []
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
    assert "ValidationError" not in json.dumps(document)


@pytest.mark.parametrize("call", PROMISED)
def test_a_call_documents_its_answers(document: dict[str, Any], call: str) -> None:
    _, statuses = PROMISED[call]
    responses = operations_of(document)[call]["responses"]
    assert {int(status) for status in responses} >= statuses | ANY_CALL


@pytest.mark.parametrize("call", PROMISED)
def test_a_call_names_its_security_requirement(document: dict[str, Any], call: str) -> None:
    scheme, _ = PROMISED[call]
    schemes = filter(None, (scheme, BEARER_OF.get(scheme or "")))
    expected: list[dict[str, list[str]]] = [{each: []} for each in schemes]
    if scheme == METRICS:
        expected.append({})
    assert operations_of(document)[call].get("security", []) == expected


def test_each_security_scheme_says_where_to_get_the_credential(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    bearer = {"type": "http", "scheme": "bearer"}
    header = {"type": "apiKey", "in": "header", "name": "X-API-Key"}
    kinds = {**dict.fromkeys(WHERE, bearer), DEVICE: header, "AccountKey": header}
    assert schemes.keys() == WHERE.keys()
    for name, scheme in schemes.items():
        assert scheme.items() >= kinds[name].items()
        assert [each for each in WHERE[name] if each not in scheme["description"]] == [], name


def test_each_pattern_has_words_for_those_who_do_not_match_it(document: dict[str, Any]) -> None:
    for part in ("broker", "telemetry", "platform"):
        import_module(f"sandyard.{part}.wiring.part")
    import_module("sandyard.bootstrap.previews")
    shown = set(_patterns(document))
    assert len(shown) > 10
    wordless = [each for each in sorted(shown - OWN_WORDS) if not has_words(each)]
    assert wordless == []


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("pattern"), str):
            yield value["pattern"]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _patterns(each)


def test_the_documented_sources_of_credentials_exist(document: dict[str, Any]) -> None:
    settings = load_settings()
    sections = (settings.server, settings.broker, settings.telemetry)
    fields = {name for section in sections for name in type(section).model_fields}
    places = {place for each in WHERE.values() for place in each}
    calls = {place for place in places if " " in place}
    assert calls <= operations_of(document).keys()
    assert {place.lower().removeprefix("secrets/") for place in places - calls} <= fields


def test_every_documented_error_has_the_one_shape(document: dict[str, Any]) -> None:
    schema = {"$ref": "#/components/schemas/ErrorAnswer"}
    for call, operation in operations_of(document).items():
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert response["content"].keys() == {"application/json"}, (call, status)
                assert response["content"]["application/json"]["schema"] == schema, (call, status)
                assert response["description"], (call, status)
    schemas = document["components"]["schemas"]
    assert schemas["ErrorAnswer"]["required"] == ["error"]
    assert set(schemas["ErrorBody"]["required"]) == {"code", "message", "request_id"}
    assert set(schemas["ErrorBody"]["properties"]) == {
        *("code", "message", "request_id", "retry_after", "details")
    }


def test_every_call_has_a_summary(document: dict[str, Any]) -> None:
    operations = operations_of(document)
    assert [call for call, o in operations.items() if not o.get("summary")] == []


def test_the_track_id_is_described_as_it_is(document: dict[str, Any]) -> None:
    operations = operations_of(document)
    for call in (call for call, (scheme, _) in PROMISED.items() if scheme == TRACK):
        headers = {each["name"]: each for each in operations[call]["parameters"]}
        track, alias = headers["X-Track-ID"], headers["X-Instruqt-Sandbox-ID"]
        assert not track["required"]
        assert "Required, once, unless `X-Instruqt-Sandbox-ID` is sent" in track["description"]
        assert not alias["required"]
        assert "wins when both are sent" in alias["description"]


def test_the_names_of_schemas_hold_no_module_path(document: dict[str, Any]) -> None:
    names = document["components"]["schemas"].keys()
    assert [name for name in names if not re.fullmatch("[A-Z][A-Za-z]+", name)] == []


def test_the_names_of_schemas_do_not_depend_on_the_parts(
    server: ServerProcess, document: dict[str, Any]
) -> None:
    """A client that was made for one part's document fits that of all of them."""
    fewer = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    schemas = document["components"]["schemas"]
    for name, schema in fewer["components"]["schemas"].items():
        assert schemas[name] == schema


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_the_document_is_open_to_everyone(whole_server: ServerProcess, path: str) -> None:
    answer = httpx.get(f"{whole_server.url}{path}", timeout=60)
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]
