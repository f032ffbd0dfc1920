"""Login through an identity provider: the redirect there, and the callback.

The values that the callback must match are in a cookie of the browser that started the login,
encrypted and valid once for ten minutes. So neither another user's response nor a replayed one
opens a session here.
"""

import hmac

from starlette.responses import RedirectResponse, Response

from sandyard.console.api import ApiError
from sandyard.console.app import LOGIN, ConsoleRequest, Screen
from sandyard.console.screens.login import next_page, opened, refused
from sandyard.console.session import LoginFlow, Session

BEGIN = LOGIN + "/oidc"
CALLBACK = BEGIN + "/callback"


async def _begin(request: ConsoleRequest) -> Response:
    wanted = next_page(request.query.get("next"))
    api = request.viewers.anonymous(request.http)
    try:
        begun = await api.post(api.paths.platform + "/auth/oidc/begin")
    except ApiError as error:
        return refused(request, error, wanted)
    response = RedirectResponse(begun["authorization_url"], 303)
    flow = LoginFlow(begun["state"], begun["nonce"], begun["code_verifier"], wanted)
    request.cookies.flow.write(response, flow)
    return response


async def _come_back(request: ConsoleRequest) -> Response:
    response = await _finish(request)
    request.cookies.flow.clear(response)
    return response


async def _finish(request: ConsoleRequest) -> Response:
    sent, flow = request.query, request.cookies.flow.read(request.http)
    if flow is None or not _is_same(sent.get("state", ""), flow.state):
        return refused(request, _NOT_BEGUN, None)
    if "error" in sent or not sent.get("code"):  # do not show the provider's text
        return refused(request, _DENIED, flow.next)
    api = request.viewers.anonymous(request.http)
    body = {"code": sent["code"], "nonce": flow.nonce, "code_verifier": flow.code_verifier}
    try:
        answer = await api.post(api.paths.platform + "/auth/oidc/finish", body)
    except ApiError as error:
        return refused(request, error, flow.next)
    return opened(request, Session(login=answer["access_token"]), flow.next)


def _is_same(sent: str, kept: str) -> bool:
    return hmac.compare_digest(sent.encode(), kept.encode())


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
    Screen(BEGIN, _begin, is_open=True),
    Screen(CALLBACK, _come_back, is_open=True),
)
