"""The use cases of signing up. Each reads the clock once.

As in `service.py`, neither an answer nor its timing reveals whether an address exists.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition, apply_decision, stateless_event
from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.accounts import model
from sandyard.platform.accounts.context import AccountContext
from sandyard.platform.accounts.errors import AccountExistsError, InvalidVerificationTokenError
from sandyard.platform.accounts.model import Account
from sandyard.platform.accounts.signups.model import (
    PendingSignup,
    Taken,
    create_signup,
    renew_signup,
    verify_signup,
)
from sandyard.platform.entities.apply import BusyError, apply_all
from sandyard.platform.mail.mailers import Mail
from sandyard.platform.projects.model import create_default_project

_RESENT = 5
"""The maximum of sign-ups of one address that are mailed again, the newest first."""

_OF_ADDRESS = 100
"""The maximum of sign-ups of one address that are read; any others just expire."""


class Signups:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._store = context.signups

    async def invite(self, email: str, *, by: Principal) -> None:
        """Mail an invitation to the address. SignupClosedError."""
        cause = self._context.cause(by.actor)
        token = self._context.invitations.issue(email, now=cause.at)
        sent = stateless_event(
            by.account_id,
            "invitation.sent",
            cause,
            account_id=by.account_id,
            data={"email": model.normalize_email(email)},
        )
        await self._store.apply(extra_events=[sent])
        mail = self._context.email_templates.invitation(email=email, token=token)
        self._context.background.start(self._context.mailer.send(mail), action="mail")

    async def sign_up(
        self,
        *,
        email: str,
        username: str,
        password: str,
        full_name: str | None,
        address: str,
        invitation: str | None = None,
    ) -> None:
        """Store the sign-up and mail the next step to the address, whatever it is.
        SignupClosedError, InvitationRequiredError."""
        email = model.normalize_email(email)
        await self._context.rate_limiter.hit("mail", account=email, address=address)
        self._context.invitations.require(
            email, invitation, now=utc_time(self._context.clock.now())
        )
        password_hash = await self._context.passwords.hash(password)
        token = self._context.make.token()
        made = create_signup(
            signup_id=resource_id("sgn"),
            email=email,
            username=username,
            full_name=full_name,
            token=token,
            password_hash=password_hash,
            cause=self._context.cause(actor("anonymous")),
        )
        # Stored even if something is taken, so that the timing reveals nothing.
        await self._store.apply(made)
        taken = await self._store.find_taken(email=email, username=username)
        mail = self._answer_to(made.result, token, taken)
        self._context.background.start(self._context.mailer.send(mail), action="mail")

    async def resend(self, *, email: str, address: str) -> None:
        """Mail a new token for each pending sign-up, and for an account whose address is not
        verified; the old ones end.

        All of them, because the newest may be a stranger's with another's address.
        """
        email = model.normalize_email(email)
        await self._context.rate_limiter.hit("mail", account=email, address=address)
        cause = self._context.cause(actor("anonymous"))
        self._context.background.start(self._resend(email, cause), action="resend")

    async def verify(self, *, token: str, address: str) -> Account:
        """Make the account and its default project, or verify the address of an account that
        exists; InvalidVerificationTokenError."""
        await self._context.rate_limiter.hit("verify", address=address)
        at = self._context.cause(actor("anonymous"))
        # AccountExistsError: its id is taken, or its name was taken just now.
        made = await apply_all(
            self._store, partial(self._verified, token, at), retried=(AccountExistsError,)
        )
        account: Account = made[0].result
        await self._context.login_limiter.remember(account.account_id, address=address)
        return account

    async def _verified(self, token: str, at: Cause) -> Sequence[Transition[Any]]:
        signup = await self._store.find_by_token(model.hash_token(token))
        if signup is None:
            return [await self._verified_address(token, at)]
        account_id = self._context.make.account_id()
        cause = replace(at, actor=actor("account", account_id))
        account, ended = verify_signup(
            signup,
            await self._store.find_of_address(signup.email, limit=_OF_ADDRESS),
            await self._store.find_taken(email=signup.email, username=signup.username),
            account_id=account_id,
            cause=cause,
        )
        project = create_default_project(
            project_id=resource_id("prj"), account_id=account_id, cause=cause
        )
        return [account, project, *ended]

    async def _verified_address(self, token: str, at: Cause) -> Transition[Account]:
        account = await self._context.accounts.find_by_verification_token(model.hash_token(token))
        cause = account and replace(at, actor=actor("account", account.account_id))
        verified = account and cause and model.verify_address(account, cause)
        if not verified:
            raise InvalidVerificationTokenError
        return verified

    def _answer_to(self, signup: PendingSignup, token: str, taken: Taken) -> Mail:
        if taken.email:
            return self._context.email_templates.email_taken(email=signup.email)
        if taken.username:
            return self._context.email_templates.username_taken(
                email=signup.email, username=signup.username
            )
        return self._context.email_templates.verification(
            email=signup.email, username=signup.username, token=token
        )

    async def _resend(self, email: str, cause: Cause) -> None:
        await self._send_verification(email, cause)
        renewed = await apply_decision(
            lambda: self._renewed(email, cause),
            lambda made: self._store.apply(*(transition for transition, _ in made)),
            busy=BusyError,
        )
        for transition, token in renewed:
            username = transition.result.username
            await self._context.mailer.send(
                self._context.email_templates.verification(
                    email=email, username=username, token=token
                )
            )

    async def _send_verification(self, email: str, cause: Cause) -> None:
        """For an account that was not made by a sign-up."""
        token = self._context.make.token()

        async def decide() -> list[Transition[Account]]:
            account = await self._context.accounts.find_by_login(email)
            requested = account and model.request_verification(account, token, cause)
            return [requested] if requested else []

        for requested in await apply_all(self._context.accounts, decide):
            username = requested.result.username
            mail = self._context.email_templates.address_verification(
                email=email, username=username, token=token
            )
            await self._context.mailer.send(mail)

    async def _renewed(
        self, email: str, cause: Cause
    ) -> list[tuple[Transition[PendingSignup], str]]:
        """The sign-ups to mail again, each with its new token."""
        renewed: list[tuple[Transition[PendingSignup], str]] = []
        for signup in await self._store.find_of_address(email, limit=_OF_ADDRESS):
            token = self._context.make.token()
            taken = await self._store.find_taken(email=email, username=signup.username)
            transition = renew_signup(signup, taken, token=token, cause=cause)
            if transition is not None:
                renewed.append((transition, token))
            if len(renewed) == _RESENT:
                break
        return renewed
