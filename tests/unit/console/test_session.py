"""The session's cookie: only what we wrote is read."""

import pytest
from starlette.requests import HTTPConnection
from starlette.responses import Response

from sandyard.console.session import (
    FLOW_COOKIE,
    SESSION_COOKIE,
    Cookies,
    LoginFlow,
    Session,
)


def request_with(cookie: str) -> HTTPConnection:
    return HTTPConnection(
        {"type": "http", "headers": [(b"cookie", f"{SESSION_COOKIE}={cookie}".encode())]}
    )


def written(cookies: Cookies, session: Session) -> str:
    response = Response()
    cookies.session.write(response, session)
    return response.headers["set-cookie"].partition(";")[0].partition("=")[2]


def test_a_session_cookie_is_read_by_every_replica() -> None:
    session = Session(login="a.b.c")
    cookie = written(Cookies(["secret"]), session)
    assert "a.b.c" not in cookie
    assert Cookies(["secret"]).session.read(request_with(cookie)) == session


@pytest.mark.parametrize("cookie", ["", "x", "gAAAAA", "\xff"])
def test_an_invalid_cookie_is_not_a_session(cookie: str) -> None:
    assert Cookies(["secret"]).session.read(request_with(cookie)) is None


def test_another_secret_ends_all_sessions() -> None:
    cookie = written(Cookies(["secret"]), Session(operator="t"))
    assert Cookies(["other"]).session.read(request_with(cookie)) is None


def test_neither_cookie_can_be_passed_off_as_the_other() -> None:
    cookies = Cookies(["secret"])
    flow = LoginFlow("state", "nonce", "verifier", "/console")
    response = Response()
    cookies.flow.write(response, flow)
    sent = response.headers["set-cookie"].partition(";")[0].partition("=")[2]
    assert "verifier" not in sent

    def named(name: str, value: str) -> HTTPConnection:
        return HTTPConnection(
            {"type": "http", "headers": [(b"cookie", f"{name}={value}".encode())]}
        )

    assert cookies.flow.read(named(FLOW_COOKIE, sent)) == flow
    assert cookies.session.read(named(SESSION_COOKIE, sent)) is None
    session = written(cookies, Session(login="a.b.c"))
    assert cookies.flow.read(named(FLOW_COOKIE, session)) is None
    assert cookies.flow.read(request_with(sent)) is None
