"""Logging in, also through an identity provider; logging out; and signing up.

The values that an identity provider's callback must match are in a cookie of the browser that
started the login, encrypted and valid once for ten minutes. So neither another user's response nor
a replayed one opens a session here.
"""

import hmac
from urllib.parse import urlsplit

from starlette.responses import RedirectResponse, Response

from sandyard.console.api import ApiError
from sandyard.console.app import LOGIN, ConsoleRequest, Screen, as_api_error
from sandyard.console.session import LoginFlow, Session
from sandyard.kit.errors import RateLimitedError, UnauthorizedError

HOME = "/console"
SIGNUP = "/console/signup"
OIDC = LOGIN + "/oidc"
OIDC_CALLBACK = OIDC + "/callback"


async def _show(request: ConsoleRequest) -> Response:
    wanted = next_page(request.query.get("next"))
    return request.page("login.html", error=None, next=wanted)


async def _log_in(request: ConsoleRequest) -> Response:
    form = await request.form()
    credentials = {"login": form.get("login", ""), "password": form.get("password", "")}
    try:
        answer = await request.anonymous.post("platform/auth/login", credentials)
    except ApiError as error:
        return refused(request, error, form.get("next"))
    return opened(request, Session(login=answer["access_token"]), form.get("next"))


async def _log_in_by_token(request: ConsoleRequest) -> Response:
    form = await request.form()
    token = form.get("token", "").strip()
    try:
        await request.console.operator_logins.check(
            request.http, lambda: bool(request.console.viewers.operated_by(token))
        )
    except (UnauthorizedError, RateLimitedError) as error:
        return refused(request, as_api_error(request.http, error), form.get("next"))
    return opened(request, Session(operator=token), form.get("next"))


async def _log_out(request: ConsoleRequest) -> Response:
    response, viewer = request.end_session(LOGIN), request.viewer
    if viewer is not None and viewer.api.login is not None:
        await viewer.api.post("platform/auth/logout")
    return response


async def _show_signup(request: ConsoleRequest) -> Response:
    """With the invitation from an email's link."""
    filled = {"invitation": request.query.get("token", "")}
    return request.page("signup.html", error=None, is_sent=False, filled=filled)


async def _sign_up(request: ConsoleRequest) -> Response:
    body = await request.form("email", "username", "password", "invitation")
    try:
        await request.anonymous.post("platform/auth/signup", body)
    except ApiError as error:
        return request.page("signup.html", error=error, is_sent=False, filled=body)
    return request.page("signup.html", error=None, is_sent=True)


async def _begin_oidc(request: ConsoleRequest) -> Response:
    wanted = next_page(request.query.get("next"))
    try:
        begun = await request.anonymous.post("platform/auth/oidc/begin")
    except ApiError as error:
        return refused(request, error, wanted)
    response = RedirectResponse(begun["authorization_url"], 303)
    flow = LoginFlow(begun["state"], begun["nonce"], begun["code_verifier"], wanted)
    request.console.cookies.flow.write(response, flow)
    return response


async def _come_back_from_oidc(request: ConsoleRequest) -> Response:
    response = await _finish_oidc(request)
    request.console.cookies.flow.clear(response)
    return response


async def _finish_oidc(request: ConsoleRequest) -> Response:
    sent, flow = request.query, request.console.cookies.flow.read(request.http)
    if flow is None or not hmac.compare_digest(sent.get("state", "").encode(), flow.state.encode()):
        return refused(request, _NOT_BEGUN, None)
    if "error" in sent or not sent.get("code"):  # do not show the provider's text
        return refused(request, _DENIED, flow.next)
    body = {"code": sent["code"], "nonce": flow.nonce, "code_verifier": flow.code_verifier}
    try:
        answer = await request.anonymous.post("platform/auth/oidc/finish", body)
    except ApiError as error:
        return refused(request, error, flow.next)
    return opened(request, Session(login=answer["access_token"]), flow.next)


def opened(request: ConsoleRequest, session: Session, sent: str | None) -> Response:
    """The requested page, with a new session."""
    response = request.redirect(next_page(sent))
    request.console.cookies.session.write(response, session)
    return response


def refused(request: ConsoleRequest, error: ApiError, wanted: str | None) -> Response:
    return request.page("login.html", status_code=error.status, error=error, next=next_page(wanted))


def next_page(path: str | None) -> str:
    """The page to continue with: only pages of the console are allowed."""
    try:
        parts = urlsplit(path or "")
    except ValueError:
        return HOME
    is_ours = not parts.netloc and not parts.scheme and parts.path.startswith("/console/")
    return parts._replace(fragment="").geturl() if is_ours else HOME


_NOT_BEGUN = ApiError(
    401,
    {
        "code": "INVALID_OIDC_LOGIN",
        "message": "This login was not started in this browser, took too long or was already used. "
        "Start it again.",
    },
)
_DENIED = ApiError(
    403,
    {
        "code": "OIDC_LOGIN_DENIED",
        "message": "The identity provider did not log you in. Try again, or use your password.",
    },
)

SCREENS = (
    Screen(LOGIN, _show, is_open=True),
    Screen(LOGIN, _log_in, "POST", is_open=True),
    Screen(LOGIN + "/operator", _log_in_by_token, "POST", is_open=True),
    Screen(OIDC, _begin_oidc, is_open=True),
    Screen(OIDC_CALLBACK, _come_back_from_oidc, is_open=True),
    Screen("/console/logout", _log_out, "POST", is_open=True),
    Screen(SIGNUP, _show_signup, is_open=True),
    Screen(SIGNUP, _sign_up, "POST", is_open=True),
)
