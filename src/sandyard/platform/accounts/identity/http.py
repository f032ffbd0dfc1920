"""Calls to log in through an identity provider."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.schemas import errors
from sandyard.platform.accounts.identity.service import IdentityLogins
from sandyard.platform.accounts.schemas import LoginAnswer, OidcBegunAnswer, OidcFinishBody
from sandyard.platform.http import PREFIX


def create_oidc_router(logins: IdentityLogins, address_of: Callable[[Request], str]) -> APIRouter:
    """Open to everyone, limited by address."""
    router = APIRouter(prefix=f"{PREFIX}/auth/oidc", tags=["accounts"], route_class=OnDemandRoute)
    Address = Annotated[str, Depends(address_of)]  # noqa: N806 - a type

    @router.post(
        "/begin",
        summary="Start a login through the identity provider",
        responses=errors(403, 429, 503),
    )
    async def begin_oidc_login(address: Address) -> OidcBegunAnswer:
        """The browser returns to the console, which finishes the login."""
        return OidcBegunAnswer.of(*await logins.begin(address=address))

    @router.post(
        "/finish",
        summary="Finish a login through the identity provider",
        responses=errors(401, 403, 429, 503),
    )
    async def finish_oidc_login(body: OidcFinishBody, address: Address) -> LoginAnswer:
        """The account is found by its verified e-mail address, or created if sign-up is open."""
        account, login = await logins.finish(
            code=body.code, nonce=body.nonce, code_verifier=body.code_verifier, address=address
        )
        return LoginAnswer.of(account, login)

    return router
