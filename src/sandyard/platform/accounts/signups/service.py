"""The use cases of signing up. Each reads the clock once.

As in `service.py`, neither an answer nor its timing reveals whether an address exists.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition, apply_decision, stateless_event
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.background import Background
from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.accounts.errors import AccountExistsError, InvalidVerificationTokenError
from sandyard.platform.accounts.ids import IdMakers
from sandyard.platform.accounts.logins.limiter import LoginLimiter
from sandyard.platform.accounts.model import Account, hash_token, normalize_email
from sandyard.platform.accounts.ports import Passwords, RateLimiter, SignupStore
from sandyard.platform.accounts.signups.invitations import Invitations
from sandyard.platform.accounts.signups.model import (
    PendingSignup,
    Taken,
    create_signup,
    renew_signup,
    verify_signup,
)
from sandyard.platform.changes.apply import BusyError, apply_all
from sandyard.platform.mail.email_templates import EmailTemplates
from sandyard.platform.mail.mailers import Mail, Mailer
from sandyard.platform.projects.model import create_default_project

_RESENT = 5
"""The maximum of sign-ups of one address that are mailed again, the newest first."""

_OF_ADDRESS = 100
"""The maximum of sign-ups of one address that are read; any others just expire."""


class Signups:
    def __init__(
        self,
        store: SignupStore,
        *,
        passwords: Passwords,
        rate_limiter: RateLimiter,
        login_limiter: LoginLimiter,
        mailer: Mailer,
        email_templates: EmailTemplates,
        invitations: Invitations,
        background: Background,
        clock: Clock,
        make: IdMakers,
    ) -> None:
        self._store = store
        self._passwords = passwords
        self._rate_limiter = rate_limiter
        self._login_limiter = login_limiter
        self._mailer = mailer
        self._email_templates = email_templates
        self._invitations = invitations
        self._background = background
        self._clock = clock
        self._make = make

    async def invite(self, email: str, *, by: Principal) -> None:
        """Mail an invitation to the address. SignupClosedError."""
        cause = self._cause(by.actor)
        token = self._invitations.issue(email, now=cause.at)
        sent = stateless_event(
            by.account_id,
            "invitation.sent",
            cause,
            account_id=by.account_id,
            data={"email": normalize_email(email)},
        )
        await self._store.apply(extra_events=[sent])
        mail = self._email_templates.invitation(email=email, token=token)
        self._background.start(self._mailer.send(mail), action="mail")

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
        email = normalize_email(email)
        await self._rate_limiter.hit("mail", account=email, address=address)
        self._invitations.require(email, invitation, now=utc_time(self._clock.now()))
        password_hash = await self._passwords.hash(password)
        token = self._make.token()
        made = create_signup(
            signup_id=resource_id("sgn"),
            email=email,
            username=username,
            full_name=full_name,
            token=token,
            password_hash=password_hash,
            cause=self._cause(actor("anonymous")),
        )
        # Stored even if something is taken, so that the timing reveals nothing.
        await self._store.apply(made)
        taken = await self._store.find_taken(email=email, username=username)
        mail = self._answer_to(made.result, token, taken)
        self._background.start(self._mailer.send(mail), action="mail")

    async def resend(self, *, email: str, address: str) -> None:
        """Mail a new token for each pending sign-up; the old ones end.

        All of them, because the newest may be a stranger's with another's address.
        """
        email = normalize_email(email)
        await self._rate_limiter.hit("mail", account=email, address=address)
        cause = self._cause(actor("anonymous"))
        self._background.start(self._resend(email, cause), action="resend")

    async def verify(self, *, token: str, address: str) -> Account:
        """Make the account and its default project; InvalidVerificationTokenError."""
        await self._rate_limiter.hit("verify", address=address)
        at = self._cause(actor("anonymous"))
        # AccountExistsError: its id is taken, or its name was taken just now.
        made = await apply_all(
            self._store, partial(self._verified, token, at), retried=(AccountExistsError,)
        )
        account: Account = made[0].result
        await self._login_limiter.remember(account.account_id, address=address)
        return account

    async def _verified(self, token: str, at: Cause) -> Sequence[Transition[Any]]:
        """The account's, and the other changes of a verification; InvalidVerificationTokenError."""
        signup = await self._store.find_by_token(hash_token(token))
        if signup is None:
            raise InvalidVerificationTokenError
        account_id = self._make.account_id()
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

    def _answer_to(self, signup: PendingSignup, token: str, taken: Taken) -> Mail:
        if taken.email:
            return self._email_templates.email_taken(email=signup.email)
        if taken.username:
            return self._email_templates.username_taken(
                email=signup.email, username=signup.username
            )
        return self._email_templates.verification(
            email=signup.email, username=signup.username, token=token
        )

    async def _resend(self, email: str, cause: Cause) -> None:
        renewed = await apply_decision(
            lambda: self._renewed(email, cause),
            lambda made: self._store.apply(*(transition for transition, _ in made)),
            busy=BusyError,
        )
        for transition, token in renewed:
            username = transition.result.username
            await self._mailer.send(
                self._email_templates.verification(email=email, username=username, token=token)
            )

    async def _renewed(
        self, email: str, cause: Cause
    ) -> list[tuple[Transition[PendingSignup], str]]:
        """The sign-ups to mail again, each with its new token."""
        renewed: list[tuple[Transition[PendingSignup], str]] = []
        for signup in await self._store.find_of_address(email, limit=_OF_ADDRESS):
            token = self._make.token()
            taken = await self._store.find_taken(email=email, username=signup.username)
            transition = renew_signup(signup, taken, token=token, cause=cause)
            if transition is not None:
                renewed.append((transition, token))
            if len(renewed) == _RESENT:
                break
        return renewed

    def _cause(self, actor: str) -> Cause:
        return Cause.by(actor, self._clock)
