"""Calls of people about their own account."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from sandyard.kit.http.on_demand import OnDemandRoute
from sandyard.kit.http.routes import joined
from sandyard.kit.http.schemas import errors
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.accounts import schemas
from sandyard.platform.accounts.pages import create_pages_router
from sandyard.platform.accounts.service import Accounts
from sandyard.platform.accounts.signups.service import Signups
from sandyard.platform.http import PREFIX

_FROM_ANYONE = errors(429, 503)


def create_auth_router(
    accounts: Accounts, signups: Signups, guard: AccessGuard, address_of: Callable[[Request], str]
) -> APIRouter:
    """Sign-up, login and passwords, also by pages; calls without a credential are limited by
    address."""
    routes = account_routes(guard, "/auth", tag="accounts")
    Address = Annotated[str, Depends(address_of)]  # noqa: N806 - a type

    @routes.post("/logout", "Log out everywhere")
    async def log_out(caller: Caller) -> schemas.LoggedOutAnswer:
        """Ends all logins of the account at once; API keys stay valid."""
        await accounts.log_out(caller)
        return schemas.LoggedOutAnswer()

    @routes.post("/password/change", "Change the password", 403, 429)
    async def change_password(
        body: schemas.PasswordChangeBody, caller: Caller, address: Address
    ) -> schemas.PasswordChangedAnswer:
        """Ends all logins, including this one."""
        await accounts.change_password(
            caller,
            current_password=body.current_password,
            new_password=body.new_password,
            address=address,
        )
        return schemas.PasswordChangedAnswer()

    return joined(
        _create_open_router(accounts, signups, address_of),
        create_pages_router(accounts, signups, address_of),
        routes.router,
    )


def _create_open_router(
    accounts: Accounts, signups: Signups, address_of: Callable[[Request], str]
) -> APIRouter:
    router = APIRouter(prefix=f"{PREFIX}/auth", tags=["accounts"], route_class=OnDemandRoute)
    Address = Annotated[str, Depends(address_of)]  # noqa: N806 - a type

    @router.post("/signup", summary="Sign up", status_code=202, responses=errors(403, 429, 503))
    async def sign_up(body: schemas.SignupBody, address: Address) -> schemas.AcceptedAnswer:
        """Sends a mail with the next step. The response is the same if the address or name is
        taken. Some servers require an `invitation`, which an admin sends by mail."""
        await signups.sign_up(
            email=body.email,
            username=body.username,
            password=body.password,
            full_name=body.full_name,
            address=address,
            invitation=body.invitation,
        )
        return schemas.AcceptedAnswer()

    @router.post(
        "/resend",
        summary="Send the verification mail again",
        status_code=202,
        responses=_FROM_ANYONE,
    )
    async def resend_verification(
        body: schemas.EmailBody, address: Address
    ) -> schemas.AcceptedAnswer:
        """Sends a new token; the previous one becomes invalid."""
        await signups.resend(email=body.email, address=address)
        return schemas.AcceptedAnswer()

    @router.post(
        "/verify", summary="Verify an e-mail address", status_code=201, responses=_FROM_ANYONE
    )
    async def verify_email(body: schemas.VerifyBody, address: Address) -> schemas.AccountAnswer:
        """Creates the account, with a default project. A token is valid once, for 24 hours."""
        return schemas.AccountAnswer.of(await signups.verify(token=body.token, address=address))

    @router.post("/login", summary="Log in", responses=errors(401, 429, 503))
    async def log_in(body: schemas.LoginBody, address: Address) -> schemas.LoginAnswer:
        """With the e-mail address or user name. The response does not say which value was wrong."""
        account, login = await accounts.log_in(
            login=body.login, password=body.password, address=address
        )
        return schemas.LoginAnswer.of(account, login)

    @router.post(
        "/password/forgot",
        summary="Request a password reset",
        status_code=202,
        responses=_FROM_ANYONE,
    )
    async def forgot_password(body: schemas.EmailBody, address: Address) -> schemas.AcceptedAnswer:
        """The response is the same if no account has the address."""
        await accounts.forgot_password(email=body.email, address=address)
        return schemas.AcceptedAnswer()

    @router.post("/password/reset", summary="Reset the password", responses=_FROM_ANYONE)
    async def reset_password(
        body: schemas.PasswordResetBody, address: Address
    ) -> schemas.PasswordChangedAnswer:
        """Ends all logins. A token is valid once, for an hour."""
        await accounts.reset_password(token=body.token, password=body.password, address=address)
        return schemas.PasswordChangedAnswer()

    return router


def create_me_router(accounts: Accounts, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "", tag="accounts")

    @routes.get("/me", "Get your account")
    async def get_me(caller: Caller) -> schemas.AccountAnswer:
        """The account of the login or API key."""
        return schemas.AccountAnswer.of(await accounts.get_account(caller.account_id))

    @routes.patch("/me", "Change your profile")
    async def update_me(body: schemas.ProfileBody, caller: Caller) -> schemas.AccountAnswer:
        """E-mail address and user name can't be changed."""
        return schemas.AccountAnswer.of(await accounts.update_profile(caller, body.sent()))

    return routes.router
