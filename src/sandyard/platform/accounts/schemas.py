"""The bodies and answers of accounts, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, StrictStr

from sandyard.kit.http.schemas import PageAnswer, example, example_of
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
    model_config = example(
        email="ada@example.com",
        username="ada",
        password=_PASSWORD,
        full_name="Ada Lovelace",
    )

    email: Email
    username: Username
    password: NewPassword
    full_name: Name | None = None
    invitation: Annotated[StrictStr, Field(max_length=2000)] | None = None


class EmailBody(RequestBody):
    model_config = example(email="ada@example.com")

    email: Email


class VerifyBody(RequestBody):
    model_config = example(token=_MAIL_TOKEN)

    token: MailToken


class LoginBody(RequestBody):
    model_config = example(login="ada", password=_PASSWORD)

    login: Annotated[
        StrictStr,
        Field(
            min_length=1,
            max_length=254,
            pattern=SEARCHABLE,
            description="E-mail address or user name",
        ),
    ]
    password: AnyPassword


class PasswordResetBody(RequestBody):
    model_config = example(token=_MAIL_TOKEN, password=_NEW_PASSWORD)

    token: MailToken
    password: NewPassword


class PasswordChangeBody(RequestBody):
    model_config = example(current_password=_PASSWORD, new_password=_NEW_PASSWORD)

    current_password: AnyPassword
    new_password: NewPassword


class ProfileBody(RequestBody):
    """Fields that are left out stay as they are; null takes the value away."""

    model_config = example(full_name="Ada King", spend_threshold="25.00")

    full_name: Name | None = None
    spend_threshold: Amount | None = Field(
        None, description="You are notified when a month's cost exceeds it"
    )


class AccountDeletionBody(RequestBody):
    model_config = example(password=_PASSWORD)

    password: AnyPassword = Field(description="The current password")


class AccountDeletedAnswer(BaseModel):
    model_config = example(status="deleted")

    status: Literal["deleted"] = "deleted"


class RoleBody(RequestBody):
    model_config = example(role="admin")

    role: Role


class AccountAnswer(Answer):
    model_config = example(
        account_id="483920175634",
        email="ada@example.com",
        username="ada",
        full_name="Ada Lovelace",
        role="user",
        is_active=True,
        is_verified=True,
        spend_threshold="25.000000",
        last_login="2026-10-30T09:00:00Z",
        created_at="2026-10-01T08:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    account_id: str
    email: str
    username: str
    full_name: str | None
    role: Role
    is_active: bool
    is_verified: bool
    spend_threshold: Money | None = Field(description="A decimal number as a string")
    last_login: datetime | None
    created_at: datetime
    updated_at: datetime


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

    model_config = example(
        authorization_url="https://id.example.com/authorize?response_type=code&client_id=sandyard",
        state=_MAIL_TOKEN,
        nonce=_MAIL_TOKEN,
        code_verifier=_MAIL_TOKEN,
    )

    authorization_url: str = Field(description="Redirect the browser to it")
    state: str = Field(description="The browser must return with it")
    nonce: str
    code_verifier: str

    @classmethod
    def of(cls, request: LoginRequest, authorization_url: str) -> Self:
        return super().of(request, authorization_url=authorization_url)


class OidcFinishBody(RequestBody):
    model_config = example(
        code="SplxlOBeZQQYbYS6WxSbIA", nonce=_MAIL_TOKEN, code_verifier=_MAIL_TOKEN
    )

    code: OidcText = Field(description="The `code` that the browser returned with")
    nonce: OidcText = Field(description="The value from the start of the login")
    code_verifier: OidcText = Field(description="The value from the start of the login")


class AcceptedAnswer(BaseModel):
    """Always the same: the next step is in a mail, if the address is usable."""

    model_config = example(status="accepted")

    status: Literal["accepted"] = "accepted"


class PasswordChangedAnswer(BaseModel):
    model_config = example(status="password_changed")

    status: Literal["password_changed"] = "password_changed"


class LoggedOutAnswer(BaseModel):
    model_config = example(status="logged_out")

    status: Literal["logged_out"] = "logged_out"
