"""Accounts, sign-ups and logins, wired."""

from functools import partial
from pathlib import Path

from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.rates import Rate
from sandyard.platform.accounts.admin.service import Administration
from sandyard.platform.accounts.context import AccountContext, IdMakers
from sandyard.platform.accounts.identity.service import IdentityLogins
from sandyard.platform.accounts.jobs import prune_login_attempts, remove_expired_signups
from sandyard.platform.accounts.logins.limiter import LoginLimiter
from sandyard.platform.accounts.logins.model import LoginLimits
from sandyard.platform.accounts.logins.rate_limiter import LimitsRateLimiter
from sandyard.platform.accounts.logins.sql import SqlLoginAttempts
from sandyard.platform.accounts.passwords import Argon2Passwords
from sandyard.platform.accounts.service import Accounts
from sandyard.platform.accounts.signups.invitations import Invitations
from sandyard.platform.accounts.signups.service import Signups
from sandyard.platform.accounts.signups.sql import SqlSignupStore
from sandyard.platform.accounts.sql import SqlAccountStore
from sandyard.platform.http import PREFIX
from sandyard.platform.mail.email_templates import EmailTemplates
from sandyard.platform.mail.mailers import FileOutbox, Mailer, SmtpMailer
from sandyard.platform.wiring.identity import identity_provider
from sandyard.platform.wiring.shared import Shared
from sandyard.settings import PlatformSettings, Settings
from sandyard.wiring.engines import secret
from sandyard.wiring.job_specs import PlatformJobSpecs as Specs

OUTBOX = "outbox"

_SIGNUPS_INTERVAL_SEC = 3600
_LOGINS_INTERVAL_SEC = 900


class AccountsWired:
    def __init__(self, shared: Shared, *, passwords: Argon2Passwords, make: IdMakers) -> None:
        settings, database, clock = shared.settings, shared.database, shared.clock
        chosen, attempts = settings.platform, SqlLoginAttempts(database)
        context = AccountContext(
            accounts=SqlAccountStore(database, shared.transitions),
            signups=SqlSignupStore(database, shared.transitions),
            passwords=passwords,
            logins=shared.logins,
            rate_limiter=LimitsRateLimiter(
                per_account=chosen.auth_rate_limit_per_account,
                per_address=chosen.auth_rate_limit_per_address,
                storage_url=settings.broker.rate_limit_storage_url,
            ),
            login_limiter=LoginLimiter(attempts, _login_limits(chosen), clock=clock),
            invitations=Invitations(settings.secret("jwt_secret"), chosen.signup),
            mailer=_mailer(settings, shared.data_dir, clock),
            email_templates=EmailTemplates((chosen.public_url or "").rstrip("/"), PREFIX),
            background=Background(),
            clock=clock,
            make=make,
        )
        records = shared.guard.idempotency.records
        removal = partial(remove_expired_signups, context.signups, clock=clock)
        pruning = partial(prune_login_attempts, attempts, records, clock=clock)
        self.accounts = Accounts(context)
        self.signups = Signups(context)
        self.administration = Administration(context)
        self.background = context.background
        self.jobs = (
            Specs.SIGNUPS.job(_SIGNUPS_INTERVAL_SEC, removal),
            Specs.LOGINS.job(_LOGINS_INTERVAL_SEC, pruning),
        )
        self.identity_logins = IdentityLogins(identity_provider(settings, clock), context)


def _login_limits(chosen: PlatformSettings) -> LoginLimits:
    return LoginLimits(
        per_pair=Rate.parse(chosen.auth_rate_limit_per_account),
        per_network=Rate.parse(chosen.auth_rate_limit_per_address),
        per_login=Rate.parse(chosen.failed_logins_per_account),
    )


def _mailer(settings: Settings, data_dir: Path, clock: Clock) -> Mailer:
    sender = settings.platform.mail_from
    url = secret(settings.platform.smtp_url)
    if url is not None:
        return SmtpMailer(url, sender=sender, clock=clock)
    return FileOutbox(data_dir / OUTBOX, sender=sender, clock=clock, make_id=ids.holder_id)
