"""Credentials that are wrong, and request ids that are invalid."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.broker.requests import (
    ADMIN_ENDPOINTS,
    NOT_ASCII,
    OPEN_ENDPOINTS,
    TOO_LONG,
    TRACK_ENDPOINTS,
    UNKNOWN_ID,
    VALID_REQUEST_ID,
    Header,
    admin_token,
    assert_error,
    logged,
    new_track,
    send,
    token,
)
from tests.support.servers.processes import ServerProcess, sandyard_serve

# Credentials


BAD_CREDENTIALS: dict[str, list[str | bytes]] = {
    "missing": [],
    "empty": [""],
    "a scheme alone": ["Bearer"],
    "a scheme and a blank": ["Bearer "],
    "a wrong token": ["Bearer wrong-token"],
    "no scheme": ["{token}"],
    "basic": ["Basic {token}"],
    "another scheme": ["Token {token}"],
    "a scheme with a colon": ["Bearer: {token}"],
    "no space": ["Bearer{token}"],
    "a tab for a space": ["Bearer\t{token}"],
    "more behind it": ["Bearer {token} more"],
    "more at its end": ["Bearer {token}x"],
    "less at its end": ["Bearer {less}"],
    "other letters": ["Bearer {upper}"],
    "quoted": ['Bearer "{token}"'],
    "two with a comma": ["Bearer {token},{token}"],
    **{name: [f"Bearer {value}"] for name, value in TOO_LONG.items()},
    **{name: [b"Bearer " + value] for name, value in NOT_ASCII.items()},
    "no text at all": [b"Bearer \xff\xfe\xfd"],
}


def credentials(values: Sequence[str | bytes], secret: str) -> list[Header]:
    words = {"token": secret, "less": secret[:-1], "upper": secret.upper()}
    return [
        ("Authorization", value.format(**words) if isinstance(value, str) else value)
        for value in values
    ]


@pytest.mark.parametrize("values", BAD_CREDENTIALS.values(), ids=BAD_CREDENTIALS)
def test_a_bad_credential_is_refused(server: ServerProcess, values: list[str | bytes]) -> None:
    track = [*credentials(values, server.track_token), ("X-Track-ID", "intruder")]
    assert_error(send(server, "POST", "/v1/allocate", track), 401, "UNAUTHORIZED")
    admin = credentials(values, server.admin_token)
    assert_error(send(server, "GET", "/v1/admin/stats", admin), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("credential", ["missing", "a wrong token", "basic"])
@pytest.mark.parametrize(("method", "path"), [*TRACK_ENDPOINTS, *ADMIN_ENDPOINTS])
def test_every_endpoint_requires_a_valid_credential(
    server: ServerProcess, method: str, path: str, credential: str
) -> None:
    secret = server.admin_token if "/admin/" in path else server.track_token
    headers = [*credentials(BAD_CREDENTIALS[credential], secret), ("X-Track-ID", "intruder")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("first", ["Bearer wrong-token", "Bearer {token}"])
def test_a_credential_that_is_sent_twice_is_refused(server: ServerProcess, first: str) -> None:
    twice = credentials([first, "Bearer {token}"], server.track_token)
    answer = send(server, "POST", "/v1/allocate", [*twice, ("X-Track-ID", new_track())])
    assert_error(answer, 400, "REPEATED_CREDENTIAL")


@pytest.mark.parametrize(("method", "path"), TRACK_ENDPOINTS)
def test_the_token_of_operators_opens_no_endpoint_of_tracks(
    server: ServerProcess, method: str, path: str
) -> None:
    headers = [admin_token(server), ("X-Track-ID", "operator")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize(("method", "path"), ADMIN_ENDPOINTS)
def test_the_token_of_tracks_opens_no_endpoint_of_operators(
    server: ServerProcess, method: str, path: str
) -> None:
    headers = [token(server), ("X-Track-ID", "curious")]
    assert_error(send(server, method, path, headers), 401, "UNAUTHORIZED")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer "])
def test_the_scheme_is_read_in_any_case(server: ServerProcess, scheme: str) -> None:
    track = [("Authorization", f"{scheme} {server.track_token}"), ("X-Track-ID", new_track())]
    assert send(server, "POST", "/v1/allocate", track).status == 201
    admin = [("Authorization", f"{scheme} {server.admin_token}")]
    assert send(server, "GET", "/v1/admin/stats", admin).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/allocate"),
        ("GET", "/v1/admin/sandboxes?limit=0"),
        ("GET", "/v1/admin/sandboxes?cursor=!&status=none"),
        ("POST", "/v1/admin/sync?force=maybe"),
    ],
)
def test_a_call_without_a_credential_is_refused_before_its_parameters_are_read(
    server: ServerProcess, method: str, path: str
) -> None:
    assert_error(send(server, method, path), 401, "UNAUTHORIZED")


def test_several_tokens_hold_at_once_so_that_they_can_be_rotated(tmp_path: Path) -> None:
    environment = {
        "BROKER_API_TOKEN": "old-track-of-the-tests, new-track-of-the-tests,,",
        "BROKER_ADMIN_TOKEN": "old-admin-of-the-tests,new-admin-of-the-tests",
    }

    def statuses(secret: str) -> tuple[int, int]:
        sent = [("Authorization", f"Bearer {secret}"), ("X-Track-ID", "t")]
        lookup = send(server, "GET", f"/v1/sandboxes/{UNKNOWN_ID}", sent)
        return lookup.status, send(server, "GET", "/v1/admin/stats", sent).status

    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        assert (
            statuses("old-track-of-the-tests") == statuses("new-track-of-the-tests") == (404, 401)
        )
        assert (
            statuses("old-admin-of-the-tests") == statuses("new-admin-of-the-tests") == (401, 200)
        )
        for wrong in (
            "old-track-of-the-tests, new-track-of-the-tests,,",
            "old-track-of-the-tests,new-track-of-the-tests",
            "old-admin-of-the-tests,new-admin-of-the-tests",
            " new-track-of-the-tests,",
            ",",
            "",
        ):
            assert statuses(wrong) == (401, 401)


# The request's id


VALID_IDS = ["a", "req-1.2_3:4", "A" * 128]
INVALID_IDS: dict[str, str | bytes] = {
    "empty": "",
    "a space inside": "a b",
    "markup": "<script>",
    "a quote": 'a"b',
    "a brace": '{"a":1}',
    **TOO_LONG,
    **NOT_ASCII,
}
ENDPOINTS_OF_ALL_KINDS = [
    *OPEN_ENDPOINTS,
    ("GET", "/v1/admin/stats"),
    ("POST", "/v1/allocate"),
    ("GET", "/nowhere"),
    ("DELETE", "/healthz"),
]


@pytest.mark.parametrize("request_id", VALID_IDS)
@pytest.mark.parametrize(("method", "path"), ENDPOINTS_OF_ALL_KINDS)
def test_a_valid_request_id_is_returned(
    server: ServerProcess, method: str, path: str, request_id: str
) -> None:
    answer = send(server, method, path, [("X-Request-ID", request_id)])
    assert answer.headers.get_all("x-request-id") == [request_id]
    if answer.status >= 400:
        assert answer.json["error"]["request_id"] == request_id


@pytest.mark.parametrize("request_id", INVALID_IDS.values(), ids=INVALID_IDS)
def test_an_invalid_request_id_is_replaced(server: ServerProcess, request_id: str | bytes) -> None:
    _assert_replaced(server, "POST", "/v1/allocate", request_id)


@pytest.mark.parametrize(("method", "path"), ENDPOINTS_OF_ALL_KINDS)
def test_every_endpoint_replaces_an_invalid_request_id(
    server: ServerProcess, method: str, path: str
) -> None:
    _assert_replaced(server, method, path, "<script>")


def _assert_replaced(
    server: ServerProcess, method: str, path: str, request_id: str | bytes
) -> None:
    answer = send(server, method, path, [("X-Request-ID", request_id)])
    [given] = answer.headers.get_all("x-request-id", [])
    assert VALID_REQUEST_ID.fullmatch(given)
    assert given.encode() not in (request_id, str(request_id).encode())
    if answer.status >= 400:
        assert answer.json["error"]["request_id"] == given


@pytest.mark.parametrize(("method", "path"), ENDPOINTS_OF_ALL_KINDS)
def test_a_request_without_an_id_gets_one_of_its_own(
    server: ServerProcess, method: str, path: str
) -> None:
    given = [send(server, method, path).headers.get_all("x-request-id", []) for _ in range(2)]
    assert [len(ids) for ids in given] == [1, 1]
    assert given[0] != given[1]
    assert all(VALID_REQUEST_ID.fullmatch(one) for [one] in given)


def test_an_answer_has_one_request_id_however_many_were_sent(server: ServerProcess) -> None:
    answer = send(server, "GET", "/nowhere", [("X-Request-ID", "one"), ("X-Request-ID", "two")])
    assert_error(answer, 404, "NOT_FOUND")


def test_the_log_has_the_request_id_that_the_caller_sent(server: ServerProcess) -> None:
    send(server, "GET", "/nowhere", [("X-Request-ID", "find-me-in-the-log")])
    line = logged(server, "find-me-in-the-log")
    assert (line["request_id"], line["outcome"]) == ("find-me-in-the-log", "NOT_FOUND")


def test_the_log_never_shows_a_credential(server: ServerProcess) -> None:
    for name, secret in (("wrong", "do-not-log-me"), ("right", server.track_token)):
        sent = [("Authorization", f"Bearer {secret}"), ("X-Request-ID", f"{name}-credential")]
        send(server, "POST", "/v1/allocate", [*sent, ("X-Track-ID", new_track())])
        logged(server, f"{name}-credential")
    log = server.log.read_text()
    for secret in ("do-not-log-me", server.track_token, server.admin_token):
        assert secret not in log
