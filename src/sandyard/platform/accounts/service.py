"""The use cases of a user's own account. Each reads the clock once.

Neither an answer nor its timing reveals whether an e-mail address or a user name exists: an unknown
user's password costs as much as a known one's, and work that depends on the user's existence
happens after the answer.
"""

from dataclasses import replace

from sandyard.kit.changes.events import actor
from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.kit.ids import resource_id
from sandyard.platform.access.login_tokens import Login
from sandyard.platform.access.principal import Principal
from sandyard.platform.accounts import errors, model
from sandyard.platform.accounts.context import AccountContext
from sandyard.platform.accounts.model import PASSWORD_CHANGED, Account, OtherAdmins, login_failed
from sandyard.platform.entities.apply import apply_all, change
from sandyard.platform.entities.model import FieldChanges
from sandyard.platform.notifications.model import Notification, create_notification


class Accounts:
    def __init__(self, context: AccountContext) -> None:
        self._context = context
        self._store = context.accounts
        self._locks = KeyedLocks()

    async def log_in(self, *, login: str, password: str, address: str) -> tuple[Account, Login]:
        """Log in by e-mail address or user name; InvalidCredentialsError whatever is wrong,
        RateLimitedError after too many failures."""
        account = await self._store.find_by_login(login)
        admission = await self._context.login_limiter.admit(
            login, account_id=account.account_id if account else None, address=address
        )
        if account is None:
            await self._context.passwords.hash(password)  # costs as much as a verification
            raise errors.InvalidCredentialsError
        is_right = await self._context.passwords.verify(password, account.password_hash)
        if not is_right or not account.is_active:
            self._log_failure(account, is_right=is_right, address=address)
            raise errors.InvalidCredentialsError
        await self._context.login_limiter.forgive(admission)
        await self._context.login_limiter.remember(account.account_id, address=address)
        cause = self._context.cause(actor("account", account.account_id))
        await self._log_success(account, password, cause, address)
        return account, self._context.logins.issue(
            account_id=account.account_id, token_version=account.token_version, now=cause.at
        )

    async def log_out(self, principal: Principal) -> None:
        """End every login of the account, on all devices."""
        cause = self._context.cause(principal.actor)
        await change(
            self._store,
            lambda: self.get_account(principal.account_id),
            lambda account: model.end_logins(account, cause),
            lock=self._locks.of(principal.account_id),
        )

    async def forgot_password(self, *, email: str, address: str) -> None:
        """Mail a reset token, if the address has an account and was not sent one just now."""
        email = model.normalize_email(email)
        await self._context.rate_limiter.hit("mail", account=email, address=address)
        cause = self._context.cause(actor("anonymous"))
        self._context.background.start(self._send_reset(email, cause), action="forgot_password")

    async def reset_password(self, *, token: str, password: str, address: str) -> None:
        """Set a new password and end all logins; InvalidResetTokenError if the token is invalid."""
        await self._context.rate_limiter.hit("reset", address=address)
        password_hash = await self._context.passwords.hash(password)
        at = self._context.cause(actor("anonymous"))

        async def decide() -> tuple[Transition[Account], Transition[Notification]]:
            account = await self._store.find_by_reset_token(model.hash_token(token))
            if account is None:
                raise errors.InvalidResetTokenError
            cause = replace(at, actor=actor("account", account.account_id))
            decided = model.reset_password(account, token, password_hash, cause)
            return decided, _password_notification(account, cause)

        reset, _ = await apply_all(self._store, decide)
        await self._context.login_limiter.remember(reset.result.account_id, address=address)

    async def change_password(
        self, principal: Principal, *, current_password: str, new_password: str, address: str
    ) -> None:
        """Set a new password and end all logins; WrongPasswordError if the old one is wrong."""
        account_id = principal.account_id
        await self._context.rate_limiter.hit("change", account=account_id, address=address)
        cause = self._context.cause(principal.actor)
        password_hash = await self._context.passwords.hash(new_password)

        async def decide() -> tuple[Transition[Account], Transition[Notification]]:
            account = await self._verified(account_id, current_password)
            decided = model.change_password(account, password_hash, cause)
            return decided, _password_notification(account, cause)

        async with self._locks.of(account_id):
            await apply_all(self._store, decide)
            await self._context.rate_limiter.reset("change", account=account_id)

    async def delete_account(self, principal: Principal, *, password: str, address: str) -> None:
        """Delete the account permanently; a job removes its data. WrongPasswordError,
        LastAdminError, LoginNeededError with an API key."""
        account_id = principal.account_id
        if principal.key_id is not None:
            raise errors.LoginNeededError
        await self._context.rate_limiter.hit("change", account=account_id, address=address)
        cause = self._context.cause(principal.actor)

        async def decide() -> tuple[Transition[Account]]:
            account = await self._verified(account_id, password)
            others = await self._store.read_fact(OtherAdmins(account_id))
            return (model.delete_account(account, others, cause),)

        async with self._locks.of(account_id):
            await apply_all(self._store, decide)

    async def get_account(self, account_id: str) -> Account:
        account = await self._store.find_account(account_id)
        if account is None:
            raise errors.AccountNotFoundError
        return account

    async def _verified(self, account_id: str, password: str) -> Account:
        """The account; WrongPasswordError if this is not its password."""
        account = await self.get_account(account_id)
        if not await self._context.passwords.verify(password, account.password_hash):
            raise errors.WrongPasswordError
        return account

    async def update_profile(self, principal: Principal, changes: FieldChanges) -> Account:
        cause = self._context.cause(principal.actor)
        return await change(
            self._store,
            lambda: self.get_account(principal.account_id),
            lambda account: model.update_profile(account, changes, cause),
            lock=self._locks.of(principal.account_id),
        )

    async def _log_success(
        self, account: Account, password: str, cause: Cause, address: str
    ) -> None:
        extra_events = [model.login_succeeded(account, cause, address=address)]
        await self._store.touch_login(account.account_id, now=cause.at)
        if self._context.passwords.is_outdated(account.password_hash):
            password_hash = await self._context.passwords.hash(password)
            rehashed = model.rehash_password(account, password_hash, cause)
            if await self._store.apply(rehashed, extra_events=extra_events):
                return
        await self._store.apply(extra_events=extra_events)

    def _log_failure(self, account: Account, *, is_right: bool, address: str) -> None:
        """Runs after the response, whose time would otherwise reveal that the account exists."""
        reason = "the account is not active" if is_right else "wrong password"
        cause = self._context.cause(actor("anonymous")).because(reason)
        failed = login_failed(account, cause, address=address)
        self._context.background.start(
            self._store.apply(extra_events=[failed]), action="login_failed"
        )

    async def _send_reset(self, email: str, cause: Cause) -> None:
        account = await self._store.find_by_login(email)
        if account is None or not account.is_active:
            return
        token, account_id = self._context.make.token(), account.account_id
        requested = await change(
            self._store,
            lambda: self.get_account(account_id),
            lambda found: model.request_reset(found, token, cause),
            lock=self._locks.of(account_id),
        )
        if requested.reset_token != model.hash_token(token):
            return
        await self._context.mailer.send(
            self._context.email_templates.reset(email=email, username=account.username, token=token)
        )


def _password_notification(account: Account, cause: Cause) -> Transition[Notification]:
    return create_notification(
        PASSWORD_CHANGED,
        notification_id=resource_id("not"),
        account_id=account.account_id,
        cause=cause,
    )
