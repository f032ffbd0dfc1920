"""The pages that links in mails lead to, for people with a browser.

Opening a link changes nothing, because mail scanners open them too: the button does.
"""

import base64
import hashlib
from collections.abc import Callable
from html import escape

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import ValidationError

from sandyard.kit.errors import InvalidError
from sandyard.kit.http.bodies import OPEN_BYTES, read_form
from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.platform.accounts import schemas
from sandyard.platform.accounts.errors import InvalidResetTokenError, InvalidVerificationTokenError
from sandyard.platform.accounts.service import Accounts
from sandyard.platform.accounts.signups.service import Signups
from sandyard.platform.mail.email_templates import FORGOT_PAGE, RESET_PAGE, VERIFY_PAGE

_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 26rem; margin: 8vh auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.45rem; }
input { display: block; box-sizing: border-box; width: 100%; margin-top: .2rem; padding: .5rem; }
input, button { font: inherit; border: 1px solid #a8a29e; border-radius: 7px; }
button { padding: .5rem 1rem; border-color: #9a3412; background: #9a3412; color: #fff; }
a { color: light-dark(#9a3412, #fdba74); }
[role=alert] { padding: .6rem 1rem; border-left: 5px solid #b91c1c; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_PASSWORD_FIELD = (
    '<p><label>New password <input name="password" type="password" required '
    f'autocomplete="new-password" minlength="{schemas.MIN_PASSWORD}" '
    f'maxlength="{schemas.MAX_PASSWORD}"></label></p>'
)
_VERIFIED_BEFORE = (
    "This link was used already, or is too old. If you have opened your account, log in; "
    "otherwise sign up again."
)
_RESET_BEFORE = "This link was used already, is too old, or a later mail has replaced it."
_ASK_AGAIN = '<p><a href="forgot">Ask for another link</a></p>'
_MAILED = "If the address has an account, a mail with a link is on its way."
_EMAIL_FIELD = '<p><label>E-mail address <input name="email" type="email" required></label></p>'


def create_pages_router(
    accounts: Accounts, signups: Signups, address_of: Callable[[Request], str]
) -> APIRouter:
    """`address_of` returns a request's address, for the rate limits."""
    router = APIRouter(include_in_schema=False, route_class=OnDemandRoute)
    _add_verification(router, signups, address_of)
    _add_reset(router, accounts, address_of)
    _add_forgotten(router, accounts, address_of)
    return router


def _add_verification(
    router: APIRouter, signups: Signups, address_of: Callable[[Request], str]
) -> None:
    @router.get(VERIFY_PAGE)
    async def show_verification(token: str = "") -> HTMLResponse:
        warning = "<p>Only if you signed up yourself: whoever did knows the password.</p>"
        form = _form("verify", "Open my account", warning, token=token)
        return _page("Open your account", form)

    @router.post(VERIFY_PAGE)
    async def verify_by_page(request: Request) -> HTMLResponse:
        token = (await _fields(request)).get("token", "")
        try:
            account = await signups.verify(token=token, address=address_of(request))
        except InvalidVerificationTokenError:
            return _refusal("This link can't be used", _VERIFIED_BEFORE)
        return _page("Your account is open", f"<p>Log in as {escape(account.username)}.</p>")


def _add_reset(router: APIRouter, accounts: Accounts, address_of: Callable[[Request], str]) -> None:
    @router.get(RESET_PAGE)
    async def show_reset(token: str = "") -> HTMLResponse:
        return _page("Set a new password", _reset_form(token))

    @router.post(RESET_PAGE)
    async def reset_by_page(request: Request) -> HTMLResponse:
        fields = await _fields(request)
        try:
            body = schemas.PasswordResetBody.model_validate(fields)
        except ValidationError:
            hint = f"A password has {schemas.MIN_PASSWORD} to {schemas.MAX_PASSWORD} characters."
            return _refusal("Set a new password", hint, _reset_form(fields.get("token", "")))
        try:
            await accounts.reset_password(
                token=body.token, password=body.password, address=address_of(request)
            )
        except InvalidResetTokenError:
            return _refusal("This link can't be used", _RESET_BEFORE, _ASK_AGAIN)
        return _page("Your password is set", "<p>All logins have ended. Log in with it.</p>")


def _add_forgotten(
    router: APIRouter, accounts: Accounts, address_of: Callable[[Request], str]
) -> None:
    @router.get(FORGOT_PAGE)
    async def show_forgotten() -> HTMLResponse:
        return _page("Reset your password", _forgot_form())

    @router.post(FORGOT_PAGE)
    async def forgot_by_page(request: Request) -> HTMLResponse:
        try:
            body = schemas.EmailBody.model_validate(await _fields(request))
        except ValidationError:
            return _refusal(
                "Reset your password", "This is not a valid e-mail address.", _forgot_form()
            )
        await accounts.forgot_password(email=body.email, address=address_of(request))
        return _page("Look into your mail", f"<p>{_MAILED}</p>")


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form; none if it has too many."""
    try:
        return await read_form(request, most_bytes=OPEN_BYTES)
    except InvalidError:
        return {}


def _reset_form(token: str) -> str:
    return _form("reset", "Set the password", _PASSWORD_FIELD, token=token)


def _forgot_form() -> str:
    return _form("forgot", "Send me a link", _EMAIL_FIELD)


def _form(action: str, button: str, inputs: str = "", **hidden: str) -> str:
    """`action` is relative, so that it works behind a proxy with a path prefix."""
    hidden_fields = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in hidden.items()
    )
    return (
        f'<form method="post" action="{action}">{hidden_fields}{inputs}'
        f'<p><button type="submit">{button}</button></p></form>'
    )


def _refusal(title: str, message: str, more: str = "") -> HTMLResponse:
    return _page(title, f'<p role="alert">{escape(message)}</p>{more}', status=400)


def _page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    content = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head>"
        f"<body><h1>{title}</h1>{body}</body></html>"
    )
    return HTMLResponse(content, status_code=status, headers=_HEADERS)
