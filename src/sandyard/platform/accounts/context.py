"""What the use cases of accounts, sign-ups and logins share."""

from dataclasses import dataclass

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.ids import IdMaker, account_id, mail_token
from sandyard.platform.access.login_tokens import Logins
from sandyard.platform.accounts.logins.limiter import LoginLimiter
from sandyard.platform.accounts.ports import AccountStore, Passwords, RateLimiter, SignupStore
from sandyard.platform.accounts.signups.invitations import Invitations
from sandyard.platform.mail.email_templates import EmailTemplates
from sandyard.platform.mail.mailers import Mailer


@dataclass(frozen=True, slots=True)
class IdMakers:
    account_id: IdMaker = account_id
    token: IdMaker = mail_token


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountContext:
    accounts: AccountStore
    signups: SignupStore
    passwords: Passwords
    logins: Logins
    rate_limiter: RateLimiter
    login_limiter: LoginLimiter
    invitations: Invitations
    mailer: Mailer
    email_templates: EmailTemplates
    background: Background
    clock: Clock
    make: IdMakers

    def cause(self, actor: str) -> Cause:
        return Cause.by(actor, self.clock)
