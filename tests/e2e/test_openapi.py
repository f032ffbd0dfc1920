"""The API's own document is valid and complete, and a fuzz along it finds nothing it leaves out."""

import importlib
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.engine import events, from_schema
from schemathesis.openapi.checks import MissingHeaderNotRejected, RejectedPositiveData

from sandyard.entrypoints.errors import status_of
from sandyard.kit.errors import SandyardError
from tests.servers import ServerProcess

MAX_EXAMPLES = 40
SEED = 20
OWNER = "lab"

TRACK, ADMIN = "TrackToken", "AdminToken"
DEVICE, OPERATOR = "DeviceKey", "TelemetryToken"
HARDWARE_ID, UNKNOWN_HARDWARE_ID = "AA:BB:CC:DD:EE:FF", "FF:FF:FF:FF:FF:FE"
TELEMETRY = "/telemetry/v1"
ONE_DEVICE = f"{TELEMETRY}/devices/{{hardware_id}}"
SANDBOX, ADMIN_SANDBOX = "/v1/sandboxes/{sandbox_id}", "/v1/admin/sandboxes/{sandbox_id}"
ANY_CALL = {413, 500}
PROMISED: dict[str, tuple[str | None, set[int]]] = {
    "POST /v1/allocate": (TRACK, {200, 201, 400, 401, 409, 429, 503}),
    f"POST {SANDBOX}/mark-for-deletion": (TRACK, {200, 400, 401, 403, 404, 503}),
    f"GET {SANDBOX}": (TRACK, {200, 400, 401, 403, 404, 503}),
    "GET /v1/admin/sandboxes": (ADMIN, {200, 400, 401, 503}),
    f"GET {ADMIN_SANDBOX}": (ADMIN, {200, 401, 404, 503}),
    "GET /v1/admin/stats": (ADMIN, {200, 401, 503}),
    "POST /v1/admin/sync": (ADMIN, {200, 400, 401, 503}),
    "POST /v1/admin/cleanup": (ADMIN, {200, 401, 503}),
    "POST /v1/admin/expire": (ADMIN, {200, 401, 503}),
    f"POST {ADMIN_SANDBOX}/quarantine": (ADMIN, {200, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/restore": (ADMIN, {200, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/release": (ADMIN, {200, 401, 404, 409, 503}),
    f"POST {ADMIN_SANDBOX}/retry-deletion": (ADMIN, {200, 401, 404, 409, 503}),
    f"POST {TELEMETRY}/data": (DEVICE, {200, 400, 401, 503}),
    f"POST {TELEMETRY}/register": (DEVICE, {200, 400, 401, 503}),
    f"POST {TELEMETRY}/api-keys": (OPERATOR, {201, 400, 401, 503}),
    f"GET {TELEMETRY}/api-keys": (OPERATOR, {200, 400, 401, 503}),
    f"DELETE {TELEMETRY}/api-keys/{{key_id}}": (OPERATOR, {200, 401, 404, 503}),
    f"GET {TELEMETRY}/devices": (OPERATOR, {200, 400, 401, 503}),
    f"GET {ONE_DEVICE}": (OPERATOR, {200, 400, 401, 404, 503}),
    f"PUT {ONE_DEVICE}": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/readings": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/latest": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/series": (OPERATOR, {200, 400, 401, 404, 503}),
    f"GET {ONE_DEVICE}/export": (OPERATOR, {200, 400, 401, 404, 503}),
    "GET /healthz": (None, {200}),
    "GET /readyz": (None, {200, 503}),
    "GET /metrics": (None, {200}),
}
REACHED = {
    **{call: {200} for call in PROMISED},
    "POST /v1/allocate": {200, 201, 400},
    f"POST {SANDBOX}/mark-for-deletion": {200, 400, 403, 404},
    f"GET {SANDBOX}": {200, 400, 403, 404},
    "GET /v1/admin/sandboxes": {200, 400},
    f"GET {ADMIN_SANDBOX}": {200, 404},
    "POST /v1/admin/sync": {200, 400},
    f"POST {TELEMETRY}/data": {200, 400},
    f"POST {TELEMETRY}/register": {200, 400},
    f"POST {TELEMETRY}/api-keys": {201, 400},
    f"DELETE {TELEMETRY}/api-keys/{{key_id}}": {200, 404},
    f"PUT {ONE_DEVICE}": {200, 400, 404},
    **{
        f"GET {ONE_DEVICE}{listing}": {200, 400, 404}
        for listing in ("", "/readings", "/latest", "/export")
    },
    f"GET {ONE_DEVICE}/series": {200, 400},
    **{
        f"POST {ADMIN_SANDBOX}/{action}": {200, 404, 409}
        for action in ("quarantine", "restore", "release", "retry-deletion")
    },
}
"""What the fuzz must have met, so that it cannot pass by never getting past the door."""


@dataclass(frozen=True, slots=True)
class FuzzRun:
    """What the fuzz found and was answered, by call."""

    breaches: Mapping[str, Sequence[str]]
    answers: Mapping[str, Sequence[schemathesis.Response]]


@pytest.fixture(scope="module")
def document(server: ServerProcess) -> dict[str, Any]:
    answer = httpx.get(f"{server.url}/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture(scope="module")
def sandbox_ids(server: ServerProcess, provider: str) -> list[str]:
    """Sandboxes in every state; those that were ever leased are OWNER's."""
    with httpx.Client(base_url=server.url, timeout=30) as client:

        def call(method: str, path: str, headers: dict[str, str]) -> dict[str, Any]:
            answer = client.request(method, path, headers=headers)
            assert answer.is_success, answer.text
            body: dict[str, Any] = answer.json()
            return body

        def lease(key: str) -> str:
            headers = server.track | {"X-Track-ID": OWNER, "Idempotency-Key": key}
            return str(call("POST", "/v1/allocate", headers)["sandbox_id"])

        def mark(sandbox_id: str) -> str:
            headers = server.track | {"X-Track-ID": OWNER}
            call("POST", f"/v1/sandboxes/{sandbox_id}/mark-for-deletion", headers)
            return sandbox_id

        def clean_up() -> None:
            call("POST", "/v1/admin/cleanup", server.admin)

        gone = mark(lease("gone"))
        clean_up()
        failed = [mark(lease(f"failed-{number}")) for number in range(2)]
        httpx.patch(f"{provider}/_sim", json={"error_rate": 1.0}).raise_for_status()
        clean_up()
        httpx.patch(f"{provider}/_sim", json={"error_rate": 0.0}).raise_for_status()
        pending = mark(lease("pending"))
        leased = [lease(f"leased-{number}") for number in range(3)]
        rows = call("GET", "/v1/admin/sandboxes?status=available", server.admin)["sandboxes"]
        free = [str(row["sandbox_id"]) for row in rows[:8]]
        for sandbox_id in free[:5]:
            call("POST", f"/v1/admin/sandboxes/{sandbox_id}/quarantine", server.admin)
        stats = call("GET", "/v1/admin/stats", server.admin)
    assert stats["deletion_failed"] == 2
    assert stats["pending_deletion"] == 1
    return [gone, *failed, pending, *leased, *free]


@pytest.fixture(scope="module")
def device_keys(server: ServerProcess) -> dict[str, str]:
    """Two API keys by their ids; the device HARDWARE_ID has registered and sent a reading."""
    with httpx.Client(base_url=server.url + TELEMETRY, headers=server.operator) as client:
        made = [client.post("/api-keys").json() for _ in range(2)]
        device = {"X-API-Key": made[0]["api_key"]}
        about = {
            "hardware_id": HARDWARE_ID,
            "boot_id": "550e8400-e29b-41d4-a716-446655440000",
            "firmware_version": "1.0.16",
        }
        about_itself: dict[str, Any] = about | {"capabilities": {}}
        client.post("/register", headers=device, json=about_itself).raise_for_status()
        reading = about | {
            "timestamp_ms": int(time.time() * 1000),
            "batch_id": "fuzz",
            "sensors": {"temp": 21.5},
            "sensor_status": {},
        }
        sent = client.post("/data", headers=device, json=reading).raise_for_status()
        assert sent.json()["acknowledged_batch_ids"] == ["fuzz"]
    return {each["key_id"]: each["api_key"] for each in made}


@pytest.fixture(scope="module")
def fuzz(server: ServerProcess, sandbox_ids: list[str], device_keys: dict[str, str]) -> FuzzRun:
    """Every call of the document with valid, boundary and invalid input.

    The engine is driven directly, because the pytest integration takes a server from a fixture on
    older versions of pytest only.
    """
    _, sending = device_keys.popitem()  # the other is for revoking
    config = schemathesis.Config.from_dict(
        {
            "seed": SEED,
            "base-url": server.url,
            "request-timeout": 10,
            "generation": {
                "max-examples": MAX_EXAMPLES,
                "deterministic": True,
                "database": "none",
                "with-security-parameters": False,
            },
            "auth": {
                "openapi": {
                    TRACK: {"bearer": server.track_token},
                    ADMIN: {"bearer": server.admin_token},
                    OPERATOR: {"bearer": "telemetry-token"},
                    DEVICE: {"api_key": sending},
                }
            },
            "dictionaries": {
                "sandbox-ids": {"values": sandbox_ids},
                "tracks": {"values": [OWNER]},
                "devices": {"values": [HARDWARE_ID, UNKNOWN_HARDWARE_ID]},
                "keys": {"values": [*device_keys, str(uuid4())]},
            },
            "parameters": {
                "path.sandbox_id": {"dictionary": "sandbox-ids", "probability": 0.6},
                "header.X-Track-ID": {"dictionary": "tracks", "probability": 0.6},
                "path.hardware_id": {"dictionary": "devices", "probability": 0.6},
                "path.key_id": {"dictionary": "keys", "probability": 0.6},
            },
        }
    )
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config)
    schema.hook(filter_failure)
    breaches: dict[str, list[str]] = defaultdict(list)
    answers: dict[str, list[schemathesis.Response]] = defaultdict(list)
    for event in from_schema(schema).execute():
        if isinstance(event, events.NonFatalError):
            breaches[event.label].append(str(event.value))
        elif isinstance(event, events.FatalError):
            raise event.exception
        elif isinstance(event, events.ScenarioFinished):
            for case_id, interaction in event.recorder.interactions.items():
                call = event.recorder.cases[case_id].value.operation.label
                if interaction.response is not None:
                    answers[call].append(interaction.response)
            for call, breach in _breaches(event):
                breaches[call].append(breach)
    return FuzzRun(breaches, answers)


def _breaches(event: events.ScenarioFinished) -> Iterator[tuple[str, str]]:
    for case_id, checks in event.recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                failure, sample = check.failure_info.failure, check.failure_info.code_sample
                call = event.recorder.cases[case_id].value.operation.label
                yield call, f"{check.name}: {failure.title}\n{failure.message}\n{sample}"


def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case[Any],
    response: schemathesis.Response,
) -> bool:
    """Whether a failed check is a breach; False where it contradicts a rule on purpose."""
    if isinstance(failure, AcceptedNegativeData) and case.path == f"{TELEMETRY}/data":
        # A bad reading is rejected by itself, in an answer of status 200.
        return not json.loads(response.content)["rejected"]
    if isinstance(failure, MissingHeaderNotRejected | AcceptedNegativeData):
        # The alias wins when both headers come, so that X-Track-ID is then not looked at.
        return not _alias_stands_in(case)
    if isinstance(failure, RejectedPositiveData):
        # A cursor is opaque: one that no listing gave out is refused, whatever its letters.
        # And no schema can say that `from` is not after `to`, or how many buckets lie between.
        code = json.loads(response.content)["error"]["code"]
        return code not in {"INVALID_CURSOR", "INVALID_RANGE", "TOO_MANY_BUCKETS"}
    return True


def _alias_stands_in(case: schemathesis.Case[Any]) -> bool:
    """Whether X-Track-ID is all that is wrong with the headers, and its alias is there and sane."""
    parameters = case.operation.definition.raw.get("parameters", [])
    forms = {p["name"]: p["schema"]["pattern"] for p in parameters if p["in"] == "header"}
    sent = {name: case.headers[name] for name in forms if name in case.headers}
    sent.pop("X-Track-ID", None)
    return "X-Instruqt-Sandbox-ID" in sent and all(
        re.fullmatch(forms[name], str(value)) for name, value in sent.items()
    )


@pytest.mark.parametrize("call", PROMISED)
def test_a_fuzzed_call_answers_as_the_document_says(fuzz: FuzzRun, call: str) -> None:
    assert not fuzz.breaches.get(call), "\n\n".join(fuzz.breaches[call])
    met = {answer.status_code for answer in fuzz.answers[call]}
    assert met >= REACHED[call]
    assert max(met) < 500


def test_the_fuzz_finds_nothing_outside_the_promised_calls(fuzz: FuzzRun) -> None:
    others = {call: found for call, found in fuzz.breaches.items() if call not in PROMISED}
    assert not others


def test_every_error_of_the_fuzz_has_the_one_shape(fuzz: FuzzRun) -> None:
    errors = [a for met in fuzz.answers.values() for a in met if a.status_code >= 400]
    assert {a.status_code for a in errors} >= {400, 401, 403, 404, 405, 409}
    for answer in errors:
        if answer.request.method == "HEAD":
            continue
        body = json.loads(answer.content)
        error = body["error"]
        assert set(body) == {"error"}
        assert {"code", "message", "request_id"} <= set(error)
        assert set(error) <= {"code", "message", "request_id", "retry_after", "details"}
        assert answer.headers["x-request-id"] == [error["request_id"]]
        assert answer.headers.get("retry-after", [None]) == [
            str(error["retry_after"]) if "retry_after" in error else None
        ]


def test_the_document_is_valid_openapi(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    schemathesis.openapi.from_dict(document).validate()


def test_the_check_of_the_document_refuses_one_that_is_not_valid(document: dict[str, Any]) -> None:
    broken = {**document, "paths": {"/v1/allocate": {"post": {"responses": []}}}}
    with pytest.raises(Exception, match="is not of type"):
        schemathesis.openapi.from_dict(broken).validate()


def test_no_call_documents_the_status_that_is_never_given(document: dict[str, Any]) -> None:
    assert [call for call, o in _operations(document).items() if "422" in o["responses"]] == []
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])
    assert "ValidationError" not in json.dumps(document)


@pytest.mark.parametrize("call", PROMISED)
def test_a_call_documents_its_answers(document: dict[str, Any], call: str) -> None:
    _, statuses = PROMISED[call]
    responses = _operations(document)[call]["responses"]
    assert {int(status) for status in responses} >= statuses | ANY_CALL


@pytest.mark.parametrize("call", PROMISED)
def test_a_call_names_the_token_that_opens_its_door(document: dict[str, Any], call: str) -> None:
    scheme, _ = PROMISED[call]
    expected: list[dict[str, list[str]]] | None = None if scheme is None else [{scheme: []}]
    assert _operations(document)[call].get("security") == expected


def test_both_kinds_of_token_are_described(document: dict[str, Any]) -> None:
    schemes = document["components"]["securitySchemes"]
    bearer = {"type": "http", "scheme": "bearer"}
    assert schemes[TRACK].items() >= bearer.items()
    assert schemes[ADMIN].items() >= bearer.items()


def test_every_documented_error_has_the_one_shape(document: dict[str, Any]) -> None:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    for call, operation in _operations(document).items():
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                assert response["content"] == error, (call, status)
                assert response["description"], (call, status)
    schemas = document["components"]["schemas"]
    assert schemas["ErrorAnswer"]["required"] == ["error"]
    assert set(schemas["ErrorBody"]["required"]) == {"code", "message", "request_id"}
    assert set(schemas["ErrorBody"]["properties"]) == {
        *("code", "message", "request_id", "retry_after", "details")
    }


def test_every_call_has_a_name_of_its_own_and_a_summary(document: dict[str, Any]) -> None:
    operations = _operations(document)
    assert len({o["operationId"] for o in operations.values()}) == len(operations)
    assert [call for call, o in operations.items() if not o.get("summary")] == []


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_the_document_is_open_to_everyone(server: ServerProcess, path: str) -> None:
    answer = httpx.get(f"{server.url}{path}")
    assert answer.status_code == 200
    assert answer.headers["x-request-id"]


def _operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def _errors(kind: type[SandyardError] = SandyardError) -> Iterator[type[SandyardError]]:
    """Every kind of error that the installed program can raise, each once."""
    for module in ("sandyard.bootstrap", "sandyard.entrypoints.serve", "sandyard.entrypoints.cli"):
        importlib.import_module(module)
    yield kind
    for subclass in kind.__subclasses__():
        if subclass.__module__.startswith("sandyard."):
            yield from _errors(subclass)


ERRORS = sorted(set(_errors()), key=lambda kind: kind.__qualname__)


def test_the_walk_over_the_errors_meets_those_of_every_layer() -> None:
    names = {kind.__name__ for kind in ERRORS}
    assert names >= {"InvalidError", "NoSandboxesAvailableError", "PortInUseError", "SettingsError"}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_has_a_stable_code_a_message_and_a_status(kind: type[SandyardError]) -> None:
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", kind.code)
    assert "__doc__" in vars(kind)
    assert len((kind.__doc__ or "").split()) >= 3
    error = kind.__new__(kind)  # some take arguments of their own; the status is the class's
    assert status_of(error) in {400, 401, 403, 404, 405, 409, 413, 429, 500, 503}


def test_no_two_errors_declare_the_same_code() -> None:
    declared: dict[str, list[str]] = defaultdict(list)
    for kind in ERRORS:
        if "code" in vars(kind):
            declared[kind.code].append(kind.__qualname__)
    assert {code: kinds for code, kinds in declared.items() if len(kinds) > 1} == {}


def test_no_two_concrete_errors_share_a_code() -> None:
    concrete = [kind for kind in ERRORS if not set(kind.__subclasses__()) & set(ERRORS)]
    sharing: dict[str, list[str]] = defaultdict(list)
    for kind in concrete:
        sharing[kind.code].append(kind.__qualname__)
    assert {code: kinds for code, kinds in sharing.items() if len(kinds) > 1} == {}


def test_only_an_only_child_inherits_the_code_of_its_category() -> None:
    for kind in ERRORS:
        children = [child for child in kind.__subclasses__() if child in ERRORS]
        heirs = [child.__qualname__ for child in children if "code" not in vars(child)]
        assert len(heirs) <= 1, (kind, heirs)
        assert not heirs or len(children) == 1, (kind, children)
