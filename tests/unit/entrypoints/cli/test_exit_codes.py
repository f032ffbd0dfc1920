"""Each kind of failure has the exit code that docs/cli.md promises."""

from pathlib import Path

import pytest
import sandyard_client as client
from sandyard_client.errors import SandyardClientError, error_class

from sandyard.entrypoints.cli.exit_codes import ExitCode, call_failed, code_of

DOCS = Path(__file__).parents[4] / "docs" / "cli.md"


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "INVALID_REQUEST", 2),
        (401, "UNAUTHORIZED", 4),
        (403, "FORBIDDEN", 4),
        (404, "SANDBOX_NOT_FOUND", 3),
        (409, "TRANSITION_NOT_ALLOWED", 5),
        (409, "NO_SANDBOXES_AVAILABLE", 6),
        (429, "RATE_LIMITED", 8),
        (500, "INTERNAL_ERROR", 7),
        (503, "STORE_UNAVAILABLE", 7),
    ],
)
def test_what_the_server_answers_is_told_apart(status: int, code: str, expected: int) -> None:
    assert code_of(error_class(status, code)(status, code, "why")) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (client.ConnectionFailedError("nobody"), 7),
        (client.ConfigurationError("no token"), 2),
        (client.LeaseLostError("gone"), 5),
    ],
)
def test_so_is_what_only_a_caller_meets(error: SandyardClientError, expected: int) -> None:
    error.add_note("What to do about it.")
    failed = call_failed(error)
    assert (failed.code, failed.message) == (expected, f"{error} What to do about it.")


def test_a_lease_of_an_unknown_sandbox_is_not_found() -> None:
    lost = client.LeaseLostError("gone")
    lost.__cause__ = client.NotFoundError(404, "SANDBOX_NOT_FOUND", "no such")
    assert code_of(lost) == ExitCode.NOT_FOUND


def test_what_the_server_says_about_a_refusal_is_shown() -> None:
    mistake = {"in": "body", "field": "cpu_spec", "message": "at most 8"}
    details = {"mistakes": [mistake]}
    invalid = client.InvalidError(400, "INVALID_REQUEST", "Malformed.", details=details)
    assert call_failed(invalid).message == "INVALID_REQUEST: Malformed. [cpu_spec: at most 8]"
    conflict = client.ConflictError(409, "LEASE_TOO_LONG", "no", details={"possible_minutes": 0})
    assert call_failed(conflict).message == "LEASE_TOO_LONG: no [possible_minutes=0]"


def test_every_code_is_documented() -> None:
    table = DOCS.read_text()
    for code in ExitCode:
        assert (
            f"| {code.value} |" in table
            or f"{code.value}, " in table
            or f", {code.value} |" in table
        )
