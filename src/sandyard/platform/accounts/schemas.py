"""The bodies and answers of accounts, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, StrictStr

from sandyard.kit.http.schemas import Documented, PageAnswer, eg, example, example_of
from sandyard.platform.access.login_tokens import Login
from sandyard.platform.access.principal import Role
from sandyard.platform.accounts.identity.model import LoginRequest
from sandyard.platform.accounts.model import EMAIL, USERNAME, Account
from sandyard.platform.http.fields import SEARCHABLE, Amount, Answer, Money, Name, RequestBody

MIN_PASSWORD, MAX_PASSWORD = 10, 128

_PASSWORD, _NEW_PASSWORD = "correct horse battery", "battery staple horse"
_MAIL_TOKEN = "Zk3vW8yQ1sR6tU9xB2dE5gH7jK0mN4pA3cF6iL8oS1u"  # noqa: S105 - an example
_ACCESS_TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiI0ODM5MjAxNzU2MzQifQ.c2lnbmF0dXJl"  # noqa: S105

Email = Annotated[StrictStr, Field(min_length=3, max_length=254, pattern=EMAIL)]
Username = Annotated[StrictStr, Field(min_length=3, max_length=100, pattern=USERNAME)]
NewPassword = Annotated[StrictStr, Field(min_length=MIN_PASSWORD, max_length=MAX_PASSWORD)]
AnyPassword = Annotated[StrictStr, Field(min_length=1, max_length=MAX_PASSWORD)]
OidcText = Annotated[StrictStr, Field(min_length=1, max_length=4000, pattern=SEARCHABLE)]
MailToken = Annotated[StrictStr, Field(min_length=1, max_length=255, description="From the mail")]


class SignupBody(RequestBody):
    email: Email = eg("ada@example.com")
    username: Username = eg("ada")
    password: NewPassword = eg(_PASSWORD)
    full_name: Name | None = eg("Ada Lovelace", None)
    invitation: Annotated[StrictStr, Field(max_length=2000)] | None = None


class EmailBody(RequestBody):
    email: Email = eg("ada@example.com")


class VerifyBody(RequestBody):
    token: MailToken = eg(_MAIL_TOKEN)


class LoginBody(RequestBody):
    login: Annotated[
        StrictStr,
        Field(
            min_length=1,
            max_length=254,
            pattern=SEARCHABLE,
            description="E-mail address or user name",
        ),
    ] = eg("ada")
    password: AnyPassword = eg(_PASSWORD)


class PasswordResetBody(RequestBody):
    token: MailToken = eg(_MAIL_TOKEN)
    password: NewPassword = eg(_NEW_PASSWORD)


class PasswordChangeBody(RequestBody):
    current_password: AnyPassword = eg(_PASSWORD)
    new_password: NewPassword = eg(_NEW_PASSWORD)


class ProfileBody(RequestBody):
    """Fields that are left out stay as they are; null takes the value away."""

    full_name: Name | None = eg("Ada King", None)
    spend_threshold: Amount | None = eg(
        "25.00", None, description="You are notified when a month's cost exceeds it"
    )


class AccountDeletionBody(RequestBody):
    password: AnyPassword = eg(_PASSWORD, description="The current password")


class AccountDeletedAnswer(Documented):
    status: Literal["deleted"] = eg("deleted", "deleted")


class RoleBody(RequestBody):
    role: Role = eg("admin")


class AccountAnswer(Answer):
    account_id: str = eg("483920175634")
    email: str = eg("ada@example.com")
    username: str = eg("ada")
    full_name: str | None = eg("Ada Lovelace")
    role: Role = eg("user")
    is_active: bool = eg(True)
    is_verified: bool = eg(True)
    spend_threshold: Money | None = eg("25.000000", description="A decimal number as a string")
    last_login: datetime | None = eg("2026-10-30T09:00:00Z")
    created_at: datetime = eg("2026-10-01T08:00:00Z")
    updated_at: datetime = eg("2026-10-30T09:00:00Z")


class UserPage(PageAnswer):
    users: list[AccountAnswer]
    next_cursor: str | None


class LoginAnswer(Answer):
    model_config = example(
        access_token=_ACCESS_TOKEN,
        token_type="bearer",  # noqa: S106 - no password
        expires_at="2026-10-31T09:00:00Z",
        account=example_of(AccountAnswer),
    )

    access_token: str = Field(description="Send it as `Authorization: Bearer …`")
    token_type: Literal["bearer"] = "bearer"  # noqa: S105 - no password
    expires_at: datetime
    account: AccountAnswer

    @classmethod
    def of(cls, account: Account, login: Login) -> Self:
        return super().of(login, account=AccountAnswer.of(account))


class OidcBegunAnswer(Answer):
    """Keep all but the address where only the browser that asked can use it."""

    authorization_url: str = eg(
        "https://id.example.com/authorize?response_type=code&client_id=sandyard",
        description="Redirect the browser to it",
    )
    state: str = eg(_MAIL_TOKEN, description="The browser must return with it")
    nonce: str = eg(_MAIL_TOKEN)
    code_verifier: str = eg(_MAIL_TOKEN)

    @classmethod
    def of(cls, request: LoginRequest, authorization_url: str) -> Self:
        return super().of(request, authorization_url=authorization_url)


class OidcFinishBody(RequestBody):
    code: OidcText = eg(
        "SplxlOBeZQQYbYS6WxSbIA", description="The `code` that the browser returned with"
    )
    nonce: OidcText = eg(_MAIL_TOKEN, description="The value from the start of the login")
    code_verifier: OidcText = eg(_MAIL_TOKEN, description="The value from the start of the login")


class AcceptedAnswer(Documented):
    """Always the same: the next step is in a mail, if the address is usable."""

    status: Literal["accepted"] = eg("accepted", "accepted")


class PasswordChangedAnswer(Documented):
    status: Literal["password_changed"] = eg("password_changed", "password_changed")


class LoggedOutAnswer(Documented):
    status: Literal["logged_out"] = eg("logged_out", "logged_out")
