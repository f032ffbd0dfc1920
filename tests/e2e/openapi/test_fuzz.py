"""A fuzz along the API's own document finds nothing that it leaves out."""

import json
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import pytest
import schemathesis
from schemathesis.core.failures import AcceptedNegativeData, Failure
from schemathesis.openapi.checks import RejectedPositiveData

from tests.support.documents.documented_calls import (
    ADMIN,
    ADMIN_SANDBOX,
    DEVICE,
    ONE_DEVICE,
    OPERATOR,
    PROMISED,
    SANDBOX,
    TELEMETRY,
    TRACK,
)
from tests.support.documents.schema_fuzz import FuzzRun, fuzz_config, run_fuzz
from tests.support.servers.processes import ServerProcess

pytestmark = pytest.mark.timeout(900)
"""The whole fuzz is one fixture, and takes minutes on a busy machine."""
FEW, MANY = 2, 20
OWNER = "lab"
RESERVATION = "/v1/admin/reservations/{reservation_id}"
SWEEPING = "/(bulk-delete|bulk-hold|bulk-quarantine|bulk-restore|auto-delete-stale)$"
HARDWARE_ID, UNKNOWN_HARDWARE_ID = "AA:BB:CC:DD:EE:FF", "FF:FF:FF:FF:FF:FE"

RULES = {
    *("INVALID_CURSOR", "INVALID_RANGE", "TOO_MANY_BUCKETS", "INVALID_LAB_MINUTES"),
    *("INVALID_RESERVATION", "TOKEN_EXPIRY_PASSED", "UNKNOWN_EVENT_KIND"),
}
"""Refusals of what no schema can rule out."""
FILLED_IN = "INVALID_PRIORITY"
"""Refuses the `0` that schemathesis puts into a header with a pattern while it varies others."""

REACHED = {
    **{call: {200} for call in PROMISED},
    "POST /v1/allocate": {200, 201, 400},
    "DELETE /v1/queue": {400, 404},
    "POST /v1/admin/reservations": {400, 409},  # 201 is met by the fixture
    **{f"{method} {RESERVATION}": {200, 404} for method in ("GET", "DELETE")},
    f"POST {SANDBOX}/replace": {200, 400, 403, 404, 409},
    f"POST {SANDBOX}/extend": {200, 400, 403, 404, 409},
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
        for listing in ("", "/readings", "/latest", "/export", "/series")
    },
    **{
        f"POST {ADMIN_SANDBOX}/{action}": {200, 404, 409}
        for action in ("quarantine", "restore", "release", "retry-deletion")
    },
}
"""What the fuzz must have met, so that it cannot pass by never getting past the guard."""


LIVE = ("mark-for-deletion", "extend", "replace")
"""Calls about a live lease: each has some of its own, which no other takes away."""


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Sandboxes in every state; those that were ever leased are OWNER's."""

    of_any_call: list[str]
    of_call: dict[str, list[str]]


@pytest.fixture(scope="module")
def sandboxes(server: ServerProcess, provider: str) -> Sandboxes:
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
        httpx.patch(f"{provider}/_sim", json={"error_rate": 1.0}, timeout=60).raise_for_status()
        away = client.post(f"{server.url}/v1/admin/cleanup", headers=server.admin)
        assert away.status_code == 503, "the provider is away"
        httpx.patch(f"{provider}/_sim", json={"error_rate": 0.0}, timeout=60).raise_for_status()
        pending = mark(lease("pending"))
        leased = [lease(f"leased-{number}") for number in range(3)]
        rows = call("GET", "/v1/admin/sandboxes?status=available", server.admin)["sandboxes"]
        free = [str(row["sandbox_id"]) for row in rows[:8]]
        for sandbox_id in free[:5]:
            call("POST", f"/v1/admin/sandboxes/{sandbox_id}/quarantine", server.admin)
        live = {each: [lease(f"{each}-{number}") for number in range(8)] for each in LIVE}
        held = lease("held")
        url = f"{server.url}/v1/admin/sandboxes/{held}/hold"
        client.post(url, headers=server.admin, json={"reason": "broken"}).raise_for_status()
        stats = call("GET", "/v1/admin/stats", server.admin)
    assert stats["deletion_failed"] == 2
    assert stats["pending_deletion"] == 1
    return Sandboxes(
        [gone, *failed, pending, *leased, *free],
        {each: [*ids, gone, held, free[0], str(uuid4())] for each, ids in live.items()},
    )


@pytest.fixture(scope="module")
def reservation(server: ServerProcess) -> str:
    """The id of a reservation that has all of its sandboxes."""
    body = {"count": 2, "track_prefix": "course-", "to": int(time.time()) + 3600}
    url = f"{server.url}/v1/admin/reservations"
    made = httpx.post(url, headers=server.admin, json=body, timeout=30).raise_for_status()
    return str(made.json()["reservation_id"])


@pytest.fixture(scope="module")
def device_keys(server: ServerProcess) -> dict[str, str]:
    """Two API keys by their ids; the device HARDWARE_ID has registered and sent a reading."""
    with httpx.Client(
        base_url=server.url + TELEMETRY, headers=server.operator, timeout=60
    ) as client:
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


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.torture)])
def examples(request: pytest.FixtureRequest) -> int:
    """How many of valid and of invalid input, beside those at the bounds."""
    return int(request.param)


@pytest.fixture(scope="module")
def fuzz(
    server: ServerProcess,
    sandboxes: Sandboxes,
    device_keys: dict[str, str],
    reservation: str,
    examples: int,
) -> FuzzRun:
    """Every call of the document with valid, boundary and invalid input."""
    _, sending = device_keys.popitem()  # the other is for revoking
    sections: dict[str, Any] = {
        "auth": {
            TRACK: {"bearer": server.track_token},
            ADMIN: {"bearer": server.admin_token},
            OPERATOR: {"bearer": "telemetry-token-of-the-tests"},
            DEVICE: {"api_key": sending},
        },
        "dictionaries": {
            "sandbox-ids": {"values": sandboxes.of_any_call},
            **{call: {"values": ids} for call, ids in sandboxes.of_call.items()},
            "minutes": {"values": [1]},
            "tracks": {"values": [OWNER]},
            "devices": {"values": [HARDWARE_ID, UNKNOWN_HARDWARE_ID]},
            "keys": {"values": [*device_keys, str(uuid4())]},
            "reservations": {"values": [reservation, "res-unknown"]},
            "begins": {"values": [int(time.time())]},
            "ends": {"values": [int(time.time()) + 3600]},
            "courses": {"values": ["course-"]},
            "counts": {"values": [1, 10_000]},
        },
        "parameters": {
            "path.sandbox_id": {"dictionary": "sandbox-ids", "probability": 0.6},
            "header.X-Track-ID": {"dictionary": "tracks", "probability": 0.6},
            "path.hardware_id": {"dictionary": "devices", "probability": 0.6},
            "path.key_id": {"dictionary": "keys", "probability": 0.6},
            "path.reservation_id": {"dictionary": "reservations", "probability": 0.6},
            "body.minutes": {"dictionary": "minutes", "probability": 0.6},
            "body.from": {"dictionary": "begins", "probability": 0.9},
            "body.to": {"dictionary": "ends", "probability": 0.9},
            "body.track_prefix": {"dictionary": "courses", "probability": 0.9},
            "body.count": {"dictionary": "counts", "probability": 0.9},
        },
        "operations": [
            {
                "include-name": f"POST {SANDBOX}/{call}",
                "parameters": {
                    "path.sandbox_id": {"dictionary": call, "probability": 0.8},
                    "header.X-Track-ID": {"dictionary": "tracks", "probability": 0.8},
                    "header.X-Instruqt-Sandbox-ID": {"dictionary": "tracks", "probability": 0.8},
                },
            }
            for call in sandboxes.of_call
        ],
    }

    alone = {"phases": {"stateful": {"enabled": False}}}

    def document(**more: Any) -> Any:
        config = fuzz_config(server.url, max_examples=examples, **(sections | more))
        schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config)
        schema.hook(filter_failure)
        return schema

    # Last what may take every sandbox away from the others, and has no links to follow.
    # Without rules for single operations, beside which `include` has no effect.
    sweeping = document(**alone, operations=[]).include(path_regex=SWEEPING)
    assert 0 < len(list(sweeping.get_all_operations())) < 10
    along_links = {} if examples == MANY else alone
    return run_fuzz(document(**along_links).exclude(path_regex=SWEEPING), sweeping)


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
    if isinstance(failure, AcceptedNegativeData):
        # The alias wins when both headers come, so that X-Track-ID is then not looked at.
        return not _alias_stands_in(case)
    if isinstance(failure, RejectedPositiveData):
        # A cursor is opaque: one that no listing gave out is refused, whatever its letters.
        # And no schema can say that `from` is not after `to`, or how many buckets lie between.
        # Nor that one of two headers is required, or what LEASE_MAX_HOURS is.
        code = json.loads(response.content)["error"]["code"]
        if code == "INVALID_TRACK_ID":
            return bool({"X-Track-ID", "X-Instruqt-Sandbox-ID"} & set(case.headers))
        return code not in RULES | {FILLED_IN}
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
def test_a_fuzzed_call_answers_as_the_document_says(
    fuzz: FuzzRun, call: str, examples: int
) -> None:
    assert not fuzz.breaches.get(call), "\n\n".join(fuzz.breaches[call])
    met = Counter(answer.status_code for answer in fuzz.answers[call])
    assert met
    assert examples < MANY or set(met) >= REACHED[call], met
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
