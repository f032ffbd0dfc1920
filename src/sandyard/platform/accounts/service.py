"""The use cases of somebody's own account. Each reads the clock once.

No answer here, and no time that one takes, tells whether an e-mail address or a user name is known:
a stranger's password costs as much as a known one's, and whatever depends on a stranger's being
known happens after the answer.
"""

from dataclasses import dataclass
from datetime import datetime

from sandyard.kit.background import Background
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.ids import IdMaker, account_id, mail_token, resource_id
from sandyard.platform.accounts.errors import (
    AccountExistsError,
    AccountNotFoundError,
    InvalidCredentialsError,
    InvalidResetTokenError,
    InvalidVerificationTokenError,
    WrongPasswordError,
)
from sandyard.platform.accounts.letters import Letters
from sandyard.platform.accounts.model import (
    RESET_LIFETIME,
    VERIFICATION_LIFETIME,
    Account,
    PendingSignup,
    ProfileChanges,
    Taken,
    hash_token,
    normal_email,
)
from sandyard.platform.accounts.ports import AccountStore, Attempts, Passwords, SignupStore
from sandyard.platform.logins import Login, Logins
from sandyard.platform.mail import Mail, Mailer
from sandyard.platform.notifications.model import Notice, NotificationType

_TRIES = 5
"""Of account ids; that even one is taken is unlikely."""

_RESENT = 5
"""So many sign-ups of one address are mailed again, the newest first."""

_PASSWORD_CHANGED = Notice(
    "Your password was changed",
    "All logins have ended. If it was not you, reset your password and look at your API keys.",
    NotificationType.WARNING,
    related_entity_type="account",
)


@dataclass(frozen=True, slots=True)
class Makers:
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
        attempts: Attempts,
        mailer: Mailer,
        letters: Letters,
        background: Background,
        clock: Clock,
        make: Makers | None = None,
    ) -> None:
        self._store = store
        self._signups = signups
        self._passwords = passwords
        self._logins = logins
        self._attempts = attempts
        self._mailer = mailer
        self._letters = letters
        self._background = background
        self._clock = clock
        self._make = make or Makers()

    async def sign_up(
        self, *, email: str, username: str, password: str, full_name: str | None, address: str
    ) -> None:
        """Keep the sign-up and mail the address what to do next, whatever that is."""
        email = normal_email(email)
        await self._attempts.count("mail", account=email, address=address)
        password_hash = await self._passwords.hash(password)
        now = self._now()
        token = self._make.token()
        signup = PendingSignup(
            signup_id=resource_id("sgn"),
            email=email,
            username=username,
            full_name=full_name,
            verification_token=hash_token(token),
            password_hash=password_hash,
            created_at=now,
            expires_at=now + VERIFICATION_LIFETIME,
        )
        taken = await self._signups.add_signup(signup)
        self._send(self._answer_to(signup, token, taken))

    async def resend(self, *, email: str, address: str) -> None:
        """Mail each sign-up that waits for one a new token; its old one ends.

        All of them, because the newest may be a stranger's with another's address.
        """
        email = normal_email(email)
        await self._attempts.count("mail", account=email, address=address)
        self._background.start(self._resend(email, self._now()), action="resend")

    async def verify(self, *, token: str, address: str) -> Account:
        """Make the account and its default project; InvalidVerificationTokenError if not."""
        await self._attempts.count("verify", address=address)
        now = self._now()
        for _ in range(_TRIES):
            try:
                account = await self._signups.verify_signup(
                    hash_token(token),
                    account_id=self._make.account_id(),
                    project_id=resource_id("prj"),
                    now=now,
                )
            except AccountExistsError:
                continue
            if account is None:
                break
            return account
        raise InvalidVerificationTokenError

    async def log_in(self, *, login: str, password: str, address: str) -> tuple[Account, Login]:
        """A login by e-mail address or user name; InvalidCredentialsError whatever is wrong."""
        await self._attempts.count("login", account=login.lower(), address=address)
        account = await self._store.find_by_login(login)
        if account is None:
            await self._passwords.hash(password)  # costs what a verification does
            raise InvalidCredentialsError
        is_right = await self._passwords.verify(password, account.password_hash)
        if not is_right or not account.is_active:
            raise InvalidCredentialsError
        await self._attempts.forgive("login", account=login.lower())
        now = self._now()
        outdated = self._passwords.is_outdated(account.password_hash)
        await self._store.note_login(
            account.account_id,
            now=now,
            password_hash=await self._passwords.hash(password) if outdated else None,
        )
        return account, self._logins.issue(
            account_id=account.account_id, token_version=account.token_version, now=now
        )

    async def log_out(self, account_id: str) -> None:
        """End every login of the account, wherever it was given out."""
        await self._store.end_logins(account_id, now=self._now())

    async def forgot_password(self, *, email: str, address: str) -> None:
        """Mail a token to set a new password with, if the address has an account."""
        email = normal_email(email)
        await self._attempts.count("mail", account=email, address=address)
        self._background.start(self._send_reset(email, self._now()), action="forgot_password")

    async def reset_password(self, *, token: str, password: str, address: str) -> None:
        """Set a new password and end all logins; InvalidResetTokenError if the token is none."""
        await self._attempts.count("reset", address=address)
        account = await self._store.reset_password(
            hash_token(token),
            password_hash=await self._passwords.hash(password),
            now=self._now(),
            notice=_PASSWORD_CHANGED,
        )
        if account is None:
            raise InvalidResetTokenError

    async def change_password(
        self, account_id: str, *, current_password: str, new_password: str, address: str
    ) -> None:
        """Set a new password and end all logins; WrongPasswordError if the old one is wrong."""
        await self._attempts.count("change", account=account_id, address=address)
        account = await self.get_account(account_id)
        if not await self._passwords.verify(current_password, account.password_hash):
            raise WrongPasswordError
        await self._attempts.forgive("change", account=account_id)
        await self._store.change_password(
            account_id,
            password_hash=await self._passwords.hash(new_password),
            now=self._now(),
            notice=_PASSWORD_CHANGED,
        )

    async def get_account(self, account_id: str) -> Account:
        account = await self._store.find_account(account_id)
        if account is None:
            raise AccountNotFoundError
        return account

    async def update_profile(self, account_id: str, changes: ProfileChanges) -> Account:
        if not changes:
            return await self.get_account(account_id)
        return await self._store.update_profile(account_id, changes, now=self._now())

    def _answer_to(self, signup: PendingSignup, token: str, taken: Taken) -> Mail:
        if taken.email:
            return self._letters.email_taken(email=signup.email)
        if taken.username:
            return self._letters.username_taken(email=signup.email, username=signup.username)
        return self._letters.verification(email=signup.email, username=signup.username, token=token)

    async def _resend(self, email: str, now: datetime) -> None:
        tokens = [self._make.token() for _ in range(_RESENT)]
        signups = await self._signups.renew_signups(
            email,
            verification_tokens=[hash_token(token) for token in tokens],
            now=now,
            expires_at=now + VERIFICATION_LIFETIME,
        )
        for signup, token in zip(signups, tokens, strict=False):
            await self._mailer.send(
                self._letters.verification(email=email, username=signup.username, token=token)
            )

    async def _send_reset(self, email: str, now: datetime) -> None:
        token = self._make.token()
        account = await self._store.set_reset_token(
            email, reset_token=hash_token(token), now=now, expires_at=now + RESET_LIFETIME
        )
        if account is not None:
            await self._mailer.send(
                self._letters.reset(email=email, username=account.username, token=token)
            )

    def _send(self, mail: Mail) -> None:
        self._background.start(self._mailer.send(mail), action="mail")

    def _now(self) -> datetime:
        return utc_time(self._clock.now())
