"""Accounts, sign-ups and logins, wired."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandyard.kit import ids
from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.background import Background
from sandyard.kit.jobs import Job
from sandyard.kit.rates import Rate
from sandyard.platform.accounts.admin.service import Administration
from sandyard.platform.accounts.identity.service import IdentityLogins
from sandyard.platform.accounts.ids import IdMakers
from sandyard.platform.accounts.jobs import PruneLoginAttempts, RemoveExpiredSignups
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
from sandyard.platform.mail.email_templates import EmailTemplates
from sandyard.platform.mail.mailers import FileOutbox, Mailer, SmtpMailer
from sandyard.platform.wiring.identity import identity_provider
from sandyard.platform.wiring.shared import PREFIX, Shared
from sandyard.settings import PlatformSettings, Settings
from sandyard.wiring.engines import secret
from sandyard.wiring.job_specs import platform as specs

OUTBOX = "outbox"

_SIGNUPS_INTERVAL_SEC = 3600
_LOGINS_INTERVAL_SEC = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsWired:
    accounts: Accounts
    signups: Signups
    administration: Administration
    background: Background
    jobs: Sequence[Job[Any]]
    identity_logins: IdentityLogins


def build_accounts(shared: Shared, *, passwords: Argon2Passwords, make: IdMakers) -> AccountsWired:
    settings, database, transitions = shared.settings, shared.database, shared.transitions
    clock, logins = shared.clock, shared.logins
    store = SqlAccountStore(database, transitions)
    signup_store = SqlSignupStore(database, transitions)
    attempts = SqlLoginAttempts(database)
    chosen = settings.platform
    public_url = (chosen.public_url or "").rstrip("/")
    background, mailer = Background(), _mailer(settings, shared.data_dir, clock)
    rate_limiter = _rate_limiter(settings)
    login_limiter = LoginLimiter(attempts, _login_limits(chosen), clock=clock)
    invitations = Invitations(settings.secret("jwt_secret"), chosen.signup)
    email_templates = EmailTemplates(public_url, PREFIX)
    accounts = Accounts(
        store,
        passwords=passwords,
        logins=logins,
        rate_limiter=rate_limiter,
        login_limiter=login_limiter,
        clock=clock,
        make=make,
        mailer=mailer,
        email_templates=email_templates,
        background=background,
    )
    signups = Signups(
        signup_store,
        passwords=passwords,
        rate_limiter=rate_limiter,
        login_limiter=login_limiter,
        invitations=invitations,
        clock=clock,
        make=make,
        mailer=mailer,
        email_templates=email_templates,
        background=background,
    )
    identity_logins = IdentityLogins(
        identity_provider(settings, clock),
        store,
        signup_store,
        passwords=passwords,
        logins=logins,
        rate_limiter=rate_limiter,
        login_limiter=login_limiter,
        invitations=invitations,
        clock=clock,
        make=make,
    )
    administration = Administration(store, passwords=passwords, clock=clock)
    jobs = (
        specs.SIGNUPS.job(
            _SIGNUPS_INTERVAL_SEC, RemoveExpiredSignups(signup_store, clock=clock).run
        ),
        specs.LOGINS.job(_LOGINS_INTERVAL_SEC, PruneLoginAttempts(attempts, clock=clock).run),
    )
    return AccountsWired(
        accounts=accounts,
        signups=signups,
        administration=administration,
        background=background,
        jobs=jobs,
        identity_logins=identity_logins,
    )


def _login_limits(chosen: PlatformSettings) -> LoginLimits:
    return LoginLimits(
        per_pair=Rate.parse(chosen.auth_rate_limit_per_account),
        per_network=Rate.parse(chosen.auth_rate_limit_per_address),
        per_login=Rate.parse(chosen.failed_logins_per_account),
    )


def _rate_limiter(settings: Settings) -> LimitsRateLimiter:
    return LimitsRateLimiter(
        per_account=settings.platform.auth_rate_limit_per_account,
        per_address=settings.platform.auth_rate_limit_per_address,
        storage_url=settings.broker.rate_limit_storage_url,
    )


def _mailer(settings: Settings, data_dir: Path, clock: Clock) -> Mailer:
    sender = settings.platform.mail_from
    url = secret(settings.platform.smtp_url)
    if url is not None:
        return SmtpMailer(url, sender=sender, clock=clock)
    return FileOutbox(data_dir / OUTBOX, sender=sender, clock=clock, make_id=ids.holder_id)
