"""Logging in and out, and signing up."""

from urllib.parse import urlsplit

from starlette.responses import Response

from sandyard.console.api import ApiError
from sandyard.console.app import LOGIN, ConsoleRequest, Screen, as_api_error
from sandyard.console.session import Session
from sandyard.kit.errors import RateLimitedError, UnauthorizedError

HOME = "/console"
SIGNUP = "/console/signup"


async def _show(request: ConsoleRequest) -> Response:
    wanted = next_page(request.query.get("next"))
    return request.page("login.html", error=None, next=wanted)


async def _log_in(request: ConsoleRequest) -> Response:
    form = await request.form()
    api = request.viewers.anonymous(request.http)
    credentials = {"login": form.get("login", ""), "password": form.get("password", "")}
    try:
        answer = await api.post(api.paths.platform + "/auth/login", credentials)
    except ApiError as error:
        return refused(request, error, form.get("next"))
    return opened(request, Session(login=answer["access_token"]), form.get("next"))


async def _log_in_by_token(request: ConsoleRequest) -> Response:
    form = await request.form()
    token = form.get("token", "").strip()
    try:
        await request.operator_logins.check(request.http, lambda: request.viewers.accepts(token))
    except (UnauthorizedError, RateLimitedError) as error:
        return refused(request, as_api_error(request.http, error), form.get("next"))
    return opened(request, Session(operator=token), form.get("next"))


async def _log_out(request: ConsoleRequest) -> Response:
    response, viewer = request.end_session(LOGIN), request.viewer
    if viewer is not None and viewer.login is not None:
        await viewer.api.post(viewer.api.paths.platform + "/auth/logout")
    return response


async def _show_signup(request: ConsoleRequest) -> Response:
    """With the invitation from an email's link."""
    filled = {"invitation": request.query.get("token", "")}
    return request.page("signup.html", error=None, is_sent=False, filled=filled)


async def _sign_up(request: ConsoleRequest) -> Response:
    form = await request.form()
    api = request.viewers.anonymous(request.http)
    fields = ("email", "username", "password", "invitation")
    body = {name: form[name] for name in fields if name in form}
    try:
        await api.post(api.paths.platform + "/auth/signup", body)
    except ApiError as error:
        return request.page("signup.html", error=error, is_sent=False, filled=body)
    return request.page("signup.html", error=None, is_sent=True)


def opened(request: ConsoleRequest, session: Session, sent: str | None) -> Response:
    """The requested page, with a new session."""
    response = request.redirect(next_page(sent))
    request.cookies.session.write(response, session)
    return response


def refused(request: ConsoleRequest, error: ApiError, wanted: str | None) -> Response:
    response = request.page("login.html", error=error, next=next_page(wanted))
    response.status_code = error.status
    return response


def next_page(path: str | None) -> str:
    """The page to continue with: only pages of the console are allowed."""
    try:
        parts = urlsplit(path or "")
    except ValueError:
        return HOME
    is_ours = not parts.netloc and not parts.scheme and parts.path.startswith("/console/")
    return parts._replace(fragment="").geturl() if is_ours else HOME


SCREENS = (
    Screen(LOGIN, _show, is_open=True),
    Screen(LOGIN, _log_in, methods=("POST",), is_open=True),
    Screen("/console/login/operator", _log_in_by_token, methods=("POST",), is_open=True),
    Screen("/console/logout", _log_out, methods=("POST",), is_open=True),
    Screen(SIGNUP, _show_signup, is_open=True),
    Screen(SIGNUP, _sign_up, methods=("POST",), is_open=True),
)
