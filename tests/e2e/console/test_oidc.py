"""Logging in to the console through an identity provider, from the link to the page behind it."""

from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.support.servers.processes import ServerProcess
from tests.support.services.oidc_issuer import CLIENT_SECRET, OidcIssuer

SESSION, FLOW = "__Host-sandyard", "__Host-sandyard-oidc"


@pytest.fixture(autouse=True)
def olga(issuer: OidcIssuer) -> None:
    """Who logs in at the issuer, which behaves."""
    issuer.person = {"email": "olga@example.com", "email_verified": True, "name": "Olga"}
    issuer.instead = {}
    issuer.is_away = False


@dataclass
class Browser:
    """Keeps cookies as a browser does on localhost: also secure ones."""

    server: ServerProcess
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, url: str, **parameters: str) -> httpx.Response:
        whole = url if url.startswith("http") else self.server.url + url
        is_ours = whole.startswith(self.server.url)
        sent = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        headers = {"Cookie": sent} if is_ours and sent else {}
        answer = httpx.get(whole, params=parameters or None, headers=headers, timeout=30)
        for set_cookie in answer.headers.get_list("set-cookie"):
            self._keep(set_cookie)
        return answer

    def _keep(self, set_cookie: str) -> None:
        name, _, value = set_cookie.partition(";")[0].partition("=")
        assert all(each in set_cookie for each in ("Secure", "HttpOnly", "SameSite=lax", "Path=/"))
        if "Max-Age=0" in set_cookie:
            self.cookies.pop(name, None)
        else:
            self.cookies[name] = value

    def at_the_issuer(self, **parameters: str) -> str:
        """Where the issuer sends the browser back to."""
        begun = self.get("/console/login/oidc", **parameters)
        assert begun.status_code == 303
        return self.get(begun.headers["location"]).headers["location"]


@pytest.fixture
def server(console: ServerProcess) -> ServerProcess:
    return console


@pytest.fixture
def browser(server: ServerProcess) -> Browser:
    return Browser(server)


def test_a_login_through_the_issuer_continues_with_the_requested_page(
    browser: Browser, server: ServerProcess, issuer: OidcIssuer
) -> None:
    login = browser.get("/console/login", next="/console/account").text
    assert "Log in with 127.0.0.1" in login
    assert "/console/login/oidc?next=/console/account" in login
    back = browser.at_the_issuer(next="/console/account")
    assert set(browser.cookies) == {FLOW}
    asked = parse_qs(urlsplit(back).query)
    assert asked["state"][0] not in browser.cookies[FLOW]
    arrived = browser.get(back)
    assert (arrived.status_code, arrived.headers["location"]) == (303, "/console/account")
    assert set(browser.cookies) == {SESSION}
    assert "olga" in browser.get("/console/account").text
    log = server.log.read_text()
    assert CLIENT_SECRET not in log
    assert asked["code"][0] not in log
    assert issuer.exchanged > 0


def test_an_answer_opens_a_session_once_and_only_where_it_was_asked_for(
    browser: Browser, server: ServerProcess, issuer: OidcIssuer
) -> None:
    back = browser.at_the_issuer()
    before = issuer.exchanged
    elsewhere = Browser(server)
    refused(elsewhere.get(back), 401, "INVALID_OIDC_LOGIN")  # no login was begun there
    elsewhere.at_the_issuer()
    refused(elsewhere.get(back), 401, "INVALID_OIDC_LOGIN")  # another was
    assert (issuer.exchanged, elsewhere.cookies) == (before, {})
    flow = dict(browser.cookies)
    assert browser.get(back).status_code == 303
    refused(Browser(server).get(back), 401, "INVALID_OIDC_LOGIN")
    refused(Browser(server, flow).get(back), 401, "INVALID_OIDC_LOGIN")  # its code is used


@pytest.mark.parametrize("state", ["", "x", "é"])
def test_a_wrong_state_is_refused(browser: Browser, state: str) -> None:
    back = urlsplit(browser.at_the_issuer())
    code = parse_qs(back.query)["code"][0]
    refused(browser.get(back.path, code=code, state=state), 401, "INVALID_OIDC_LOGIN")
    assert browser.cookies == {}


@pytest.mark.parametrize(
    "target",
    [
        *("https://evil.example.com/console/", "//evil.example.com/console/", "http://["),
        *("/\\evil.example.com", "javascript:alert(1)", "/api/v1/me", ""),
    ],
)
def test_no_address_but_a_page_of_the_console_is_gone_to(browser: Browser, target: str) -> None:
    assert "evil" not in browser.get("/console/login", next=target).text
    arrived = browser.get(browser.at_the_issuer(next=target))
    assert arrived.headers["location"] == "/console"


def test_a_refusal_is_told_in_our_own_words(browser: Browser, issuer: OidcIssuer) -> None:
    back = urlsplit(browser.at_the_issuer())
    state = parse_qs(back.query)["state"][0]
    told = "Call +1 555 to get in"
    denied = browser.get(back.path, state=state, error="access_denied", error_description=told)
    refused(denied, 403, "OIDC_LOGIN_DENIED")
    assert told not in denied.text
    issuer.person["email_verified"] = False
    refused(browser.get(browser.at_the_issuer()), 403, "EMAIL_NOT_VERIFIED")
    assert browser.cookies == {}


def test_an_issuer_that_is_away_is_told_and_a_password_still_opens(
    browser: Browser, issuer: OidcIssuer
) -> None:
    back = browser.at_the_issuer()
    issuer.is_away = True
    away = browser.get(back)
    refused(away, 503, "OIDC_ISSUER_UNAVAILABLE")
    assert "Try again shortly" in away.text
    assert 'name="password"' in away.text


def refused(answer: httpx.Response, status: int, code: str) -> None:
    assert (answer.status_code, code in answer.text) == (status, True), answer.text
    assert SESSION + "=" not in answer.headers.get("set-cookie", "")
