"""The use cases of somebody's own account. Each reads the clock once.

No answer here, and no time that one takes, tells whether an e-mail address or a user name is known:
a stranger's password costs as much as a known one's, and whatever depends on a stranger's being
known happens after the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.background import Background
from sandyard.kit.concurrency.keyed_locks import KeyedLocks
from sandyard.kit.events import actor
from sandyard.kit.ids import IdMaker, account_id, mail_token, resource_id
from sandyard.kit.transitions import Cause, Transition, Tries, stateless_event
from sandyard.platform.accounts.email_templates import EmailTemplates
from sandyard.platform.accounts.errors import (
    AccountExistsError,
    AccountNotFoundError,
    InvalidCredentialsError,
    InvalidResetTokenError,
    InvalidVerificationTokenError,
    LoginNeededError,
    WrongPasswordError,
)
from sandyard.platform.accounts.invitations import Invitations
from sandyard.platform.accounts.login_limiter import LoginLimiter
from sandyard.platform.accounts.model import (
    PASSWORD_CHANGED,
    Account,
    PendingSignup,
    ProfileChanges,
    Taken,
    change_password,
    create_signup,
    delete_account,
    end_logins,
    hash_token,
    login_failed,
    login_succeeded,
    normalize_email,
    rehash_password,
    renew_signup,
    request_reset,
    reset_password,
    update_profile,
    verify_signup,
)
from sandyard.platform.accounts.ports import AccountStore, Passwords, RateLimiter, SignupStore
from sandyard.platform.apply import BusyError, change
from sandyard.platform.logins import Login, Logins
from sandyard.platform.mail import Mail, Mailer
from sandyard.platform.notifications.model import Notification, create_notification
from sandyard.platform.principal import Principal
from sandyard.platform.projects.model import create_default_project

_RESENT = 5
"""So many sign-ups of one address are mailed again, the newest first."""

_OF_ADDRESS = 100
"""So many sign-ups of one address are looked at; more than these just expire."""


@dataclass(frozen=True, slots=True)
class IdMakers:
    """Where ids and tokens come from."""

    account_id: IdMaker = account_id
    token: IdMaker = mail_token


class Accounts:
    def __init__(
        self,
        store: AccountStore,
        signups: SignupStore,
        *,
        passwords: Passwords,
        logins: Logins,
        rate_limiter: RateLimiter,
        login_limiter: LoginLimiter,
        mailer: Mailer,
        email_templates: EmailTemplates,
        invitations: Invitations,
        background: Background,
        clock: Clock,
        make: IdMakers | None = None,
    ) -> None:
        self._store = store
        self._signups = signups
        self._passwords = passwords
        self._logins = logins
        self._rate_limiter = rate_limiter
        self._login_limiter = login_limiter
        self._mailer = mailer
        self._email_templates = email_templates
        self._invitations = invitations
        self._background = background
        self._clock = clock
        self._locks = KeyedLocks()
        self._make = make or IdMakers()

    async def invite(self, email: str, *, by: Principal) -> None:
        """Mail the address what it needs to sign up. SignupClosedError."""
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
        """Keep the sign-up and mail the address what to do next, whatever that is.
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
        # Kept also if something of it is taken, so that the time this takes tells nothing.
        await self._signups.apply(made)
        taken = await self._signups.find_taken(email=email, username=username)
        mail = self._answer_to(made.result, token, taken)
        self._background.start(self._mailer.send(mail), action="mail")

    async def resend(self, *, email: str, address: str) -> None:
        """Mail each sign-up that waits for one a new token; its old one ends.

        All of them, because the newest may be a stranger's with another's address.
        """
        email = normalize_email(email)
        await self._rate_limiter.hit("mail", account=email, address=address)
        cause = self._cause(actor("anonymous"))
        self._background.start(self._resend(email, cause), action="resend")

    async def verify(self, *, token: str, address: str) -> Account:
        """Make the account and its default project; InvalidVerificationTokenError if not."""
        await self._rate_limiter.hit("verify", address=address)
        at = self._cause(actor("anonymous"))
        async for _ in Tries():
            account, others = await self._verified(token, at)
            try:
                if await self._signups.apply(account, *others):
                    made = account.result
                    await self._login_limiter.remember(made.account_id, address=address)
                    return made
            except AccountExistsError:  # its id is taken, or its name was just now
                continue
        raise BusyError

    async def log_in(self, *, login: str, password: str, address: str) -> tuple[Account, Login]:
        """A login by e-mail address or user name; InvalidCredentialsError whatever is wrong,
        RateLimitedError after too many that were."""
        account = await self._store.find_by_login(login)
        admission = await self._login_limiter.admit(
            login, account_id=account.account_id if account else None, address=address
        )
        if account is None:
            await self._passwords.hash(password)  # costs what a verification does
            raise InvalidCredentialsError
        is_right = await self._passwords.verify(password, account.password_hash)
        if not is_right or not account.is_active:
            self._log_failure(account, is_right=is_right, address=address)
            raise InvalidCredentialsError
        await self._login_limiter.forgive(admission)
        await self._login_limiter.remember(account.account_id, address=address)
        cause = self._cause(actor("account", account.account_id))
        await self._log_success(account, password, cause, address)
        return account, self._logins.issue(
            account_id=account.account_id, token_version=account.token_version, now=cause.at
        )

    async def log_out(self, principal: Principal) -> None:
        """End every login of the account, wherever it was given out."""
        cause = self._cause(principal.actor)
        await change(
            self._store,
            lambda: self.get_account(principal.account_id),
            lambda account: end_logins(account, cause),
            lock=self._locks.of(principal.account_id),
        )

    async def forgot_password(self, *, email: str, address: str) -> None:
        """Mail a token to set a new password with, if the address has an account and was not sent
        one just now."""
        email = normalize_email(email)
        await self._rate_limiter.hit("mail", account=email, address=address)
        cause = self._cause(actor("anonymous"))
        self._background.start(self._send_reset(email, cause), action="forgot_password")

    async def reset_password(self, *, token: str, password: str, address: str) -> None:
        """Set a new password and end all logins; InvalidResetTokenError if the token is none."""
        await self._rate_limiter.hit("reset", address=address)
        password_hash = await self._passwords.hash(password)
        at = self._cause(actor("anonymous"))
        async for _ in Tries():
            account = await self._store.find_by_reset_token(hash_token(token))
            if account is None:
                raise InvalidResetTokenError
            cause = replace(at, actor=actor("account", account.account_id))
            decided = reset_password(account, token, password_hash, cause)
            if await self._store.apply(decided, _password_notification(account, cause)):
                await self._login_limiter.remember(account.account_id, address=address)
                return
        raise BusyError

    async def change_password(
        self, principal: Principal, *, current_password: str, new_password: str, address: str
    ) -> None:
        """Set a new password and end all logins; WrongPasswordError if the old one is wrong."""
        account_id = principal.account_id
        await self._rate_limiter.hit("change", account=account_id, address=address)
        cause = self._cause(principal.actor)
        password_hash = await self._passwords.hash(new_password)
        async with self._locks.of(account_id):
            async for _ in Tries():
                account = await self.get_account(account_id)
                if not await self._passwords.verify(current_password, account.password_hash):
                    raise WrongPasswordError
                decided = change_password(account, password_hash, cause)
                if await self._store.apply(decided, _password_notification(account, cause)):
                    await self._rate_limiter.reset("change", account=account_id)
                    return
        raise BusyError

    async def delete_account(self, principal: Principal, *, password: str, address: str) -> None:
        """End the account for good; a job removes what it has. WrongPasswordError, LastAdminError,
        LoginNeededError by an API key."""
        account_id = principal.account_id
        if principal.key_id is not None:
            raise LoginNeededError
        await self._rate_limiter.hit("change", account=account_id, address=address)
        cause = self._cause(principal.actor)
        async with self._locks.of(account_id):
            async for _ in Tries():
                account = await self.get_account(account_id)
                if not await self._passwords.verify(password, account.password_hash):
                    raise WrongPasswordError
                others = await self._store.find_other_admins(account_id)
                if await self._store.apply(delete_account(account, others, cause)):
                    return
        raise BusyError

    async def get_account(self, account_id: str) -> Account:
        account = await self._store.find_account(account_id)
        if account is None:
            raise AccountNotFoundError
        return account

    async def update_profile(self, principal: Principal, changes: ProfileChanges) -> Account:
        cause = self._cause(principal.actor)
        return await change(
            self._store,
            lambda: self.get_account(principal.account_id),
            lambda account: update_profile(account, changes, cause),
            lock=self._locks.of(principal.account_id),
        )

    async def _verified(
        self, token: str, at: Cause
    ) -> tuple[Transition[Account], Sequence[Transition[Any]]]:
        """The account, and what else a verification changes; InvalidVerificationTokenError."""
        signup = await self._signups.find_by_token(hash_token(token))
        if signup is None:
            raise InvalidVerificationTokenError
        account_id = self._make.account_id()
        cause = replace(at, actor=actor("account", account_id))
        account, ended = verify_signup(
            signup,
            await self._signups.find_of_address(signup.email, limit=_OF_ADDRESS),
            await self._signups.find_taken(email=signup.email, username=signup.username),
            account_id=account_id,
            cause=cause,
        )
        project = create_default_project(
            project_id=resource_id("prj"), account_id=account_id, cause=cause
        )
        return account, [project, *ended]

    async def _log_success(
        self, account: Account, password: str, cause: Cause, address: str
    ) -> None:
        extra_events = [login_succeeded(account, cause, address=address)]
        await self._store.touch_login(account.account_id, now=cause.at)
        if self._passwords.is_outdated(account.password_hash):
            password_hash = await self._passwords.hash(password)
            rehashed = rehash_password(account, password_hash, cause)
            if await self._store.apply(rehashed, extra_events=extra_events):
                return
        await self._store.apply(extra_events=extra_events)

    def _log_failure(self, account: Account, *, is_right: bool, address: str) -> None:
        """After the answer, whose time would tell that there is such an account."""
        reason = "the account is not active" if is_right else "wrong password"
        cause = self._cause(actor("anonymous")).because(reason)
        failed = login_failed(account, cause, address=address)
        self._background.start(self._store.apply(extra_events=[failed]), action="login_failed")

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
        async for _ in Tries():
            renewed = await self._renewed(email, cause)
            if await self._signups.apply(*(transition for transition, _ in renewed)):
                break
        else:
            raise BusyError
        for transition, token in renewed:
            username = transition.result.username
            await self._mailer.send(
                self._email_templates.verification(email=email, username=username, token=token)
            )

    async def _renewed(
        self, email: str, cause: Cause
    ) -> list[tuple[Transition[PendingSignup], str]]:
        """The sign-ups that are mailed again, each with its new token."""
        renewed: list[tuple[Transition[PendingSignup], str]] = []
        for signup in await self._signups.find_of_address(email, limit=_OF_ADDRESS):
            token = self._make.token()
            taken = await self._signups.find_taken(email=email, username=signup.username)
            transition = renew_signup(signup, taken, token=token, cause=cause)
            if transition is not None:
                renewed.append((transition, token))
            if len(renewed) == _RESENT:
                break
        return renewed

    async def _send_reset(self, email: str, cause: Cause) -> None:
        account = await self._store.find_by_login(email)
        if account is None or not account.is_active:
            return
        token, account_id = self._make.token(), account.account_id
        asked = await change(
            self._store,
            lambda: self.get_account(account_id),
            lambda found: request_reset(found, token, cause),
            lock=self._locks.of(account_id),
        )
        if asked.reset_token != hash_token(token):
            return
        await self._mailer.send(
            self._email_templates.reset(email=email, username=account.username, token=token)
        )

    def _cause(self, actor: str) -> Cause:
        return Cause.by(actor, self._clock)


def _password_notification(account: Account, cause: Cause) -> Transition[Notification]:
    return create_notification(
        PASSWORD_CHANGED,
        notification_id=resource_id("not"),
        account_id=account.account_id,
        cause=cause,
    )
