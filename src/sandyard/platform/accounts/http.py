"""Calls of people about their own account."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request

from sandyard.kit.http import client_address, errors
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.accounts.schemas import (
    Accepted,
    AccountAnswer,
    ChangeBody,
    EmailBody,
    LoggedOut,
    LoginAnswer,
    LoginBody,
    PasswordChanged,
    ProfileBody,
    ResetBody,
    SignupBody,
    VerifyBody,
)
from sandyard.platform.accounts.service import Accounts
from sandyard.platform.principal import Principal


def create_auth_router(
    accounts: Accounts, guard: AccessGuard, *, prefix: str, address_header: str | None
) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/auth", tags=["accounts"])

    def address_of(request: Request) -> str:
        return client_address(request, header=address_header)

    Address = Annotated[str, Depends(address_of)]  # noqa: N806 - a type
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.post(
        "/signup",
        summary="Sign up",
        status_code=202,
        response_model=Accepted,
        responses=errors(400, 429, 503),
    )
    async def sign_up(body: Annotated[SignupBody, Body()], address: Address) -> Any:
        """A mail tells how to go on. The answer is the same if the address or name is taken."""
        await accounts.sign_up(
            email=body.email,
            username=body.username,
            password=body.password,
            full_name=body.full_name,
            address=address,
        )
        return Accepted()

    @router.post(
        "/resend",
        summary="Ask for the verification mail again",
        status_code=202,
        response_model=Accepted,
        responses=errors(400, 429, 503),
    )
    async def resend(body: Annotated[EmailBody, Body()], address: Address) -> Any:
        """With a new token; the one of the mail before ends."""
        await accounts.resend(email=body.email, address=address)
        return Accepted()

    @router.post(
        "/verify",
        summary="Verify an e-mail address",
        status_code=201,
        response_model=AccountAnswer,
        responses=errors(400, 429, 503),
    )
    async def verify(body: Annotated[VerifyBody, Body()], address: Address) -> Any:
        """Opens the account, with a default project. A token is good once, for 24 hours."""
        return AccountAnswer.of(await accounts.verify(token=body.token, address=address))

    @router.post(
        "/login",
        summary="Log in",
        response_model=LoginAnswer,
        responses=errors(400, 401, 429, 503),
    )
    async def log_in(body: Annotated[LoginBody, Body()], address: Address) -> Any:
        """By e-mail address or user name. The answer does not tell what of it was wrong."""
        account, login = await accounts.log_in(
            login=body.login, password=body.password, address=address
        )
        return LoginAnswer.of(account, login)

    @router.post(
        "/logout",
        summary="Log out everywhere",
        response_model=LoggedOut,
        responses=errors(401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def log_out(caller: Caller) -> Any:
        """Ends every login of the account at once; API keys stay."""
        await accounts.log_out(caller.account_id)
        return LoggedOut()

    @router.post(
        "/password/forgot",
        summary="Ask for a mail to reset the password",
        status_code=202,
        response_model=Accepted,
        responses=errors(400, 429, 503),
    )
    async def forgot_password(body: Annotated[EmailBody, Body()], address: Address) -> Any:
        """The answer is the same if no account has the address."""
        await accounts.forgot_password(email=body.email, address=address)
        return Accepted()

    @router.post(
        "/password/reset",
        summary="Set a new password by mail",
        response_model=PasswordChanged,
        responses=errors(400, 429, 503),
    )
    async def reset_password(body: Annotated[ResetBody, Body()], address: Address) -> Any:
        """Ends every login. A token is good once, for an hour."""
        await accounts.reset_password(token=body.token, password=body.password, address=address)
        return PasswordChanged()

    @router.post(
        "/password/change",
        summary="Change the password",
        response_model=PasswordChanged,
        responses=errors(400, 401, 403, 429, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def change_password(
        body: Annotated[ChangeBody, Body()], caller: Caller, address: Address
    ) -> Any:
        """Ends every login, this one too."""
        await accounts.change_password(
            caller.account_id,
            current_password=body.current_password,
            new_password=body.new_password,
            address=address,
        )
        return PasswordChanged()

    return router


def create_me_router(accounts: Accounts, guard: AccessGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=prefix, tags=["accounts"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.get(
        "/me",
        summary="Look at your account",
        response_model=AccountAnswer,
        responses=errors(401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_me(caller: Caller) -> Any:
        """The account of the login or the API key."""
        return AccountAnswer.of(await accounts.get_account(caller.account_id))

    @router.patch(
        "/me",
        summary="Change your profile",
        response_model=AccountAnswer,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def update_me(body: Annotated[ProfileBody, Body()], caller: Caller) -> Any:
        """E-mail address and user name stay what they are."""
        return AccountAnswer.of(await accounts.update_profile(caller.account_id, body.changes()))

    return router
