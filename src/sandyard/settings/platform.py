"""Settings of the Platform and of its sandboxes."""

import re
from decimal import Decimal
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from sandyard.kit.patterns import pattern
from sandyard.settings.fields import (
    URL,
    Hours,
    Positive,
    Price,
    Rate,
    Seconds,
    Section,
    Token,
    tokens,
)

_MIN_SIGNING_KEY = 32


class PlatformSettings(Section):
    """The Platform."""

    jwt_secret: Token = Field(
        None, description="Keys of login tokens, comma-separated: the first signs, each verifies."
    )
    login_hours: Hours = Field(24, description="Lifetime of a login token.")
    public_url: str | None = Field(
        None,
        pattern=URL,
        description="Public URL of this server, for links in mails. Unset: where it listens.",
    )
    smtp_url: SecretStr | None = Field(
        None,
        description="`smtp://`, `smtps://` or `smtp+starttls://`, with user and password if "
        "needed. Unset: mails are written to `outbox` in the data dir.",
    )
    mail_from: str = Field(
        "Sandyard <sandyard@localhost>",
        pattern=pattern(r"^[^\x00-\x1f\x7f]+$", "must have no control characters"),
        description="Sender of mails.",
    )
    attempts_per_account: Rate = Field(
        "10 per 15 minutes",
        description="Rate limit of failed logins per account and client address, and of mails per "
        "e-mail address.",
    )
    attempts_per_address: Rate = Field(
        "100 per 15 minutes",
        description="Rate limit of failed logins and of mails per client address.",
    )
    failed_logins_per_account: Rate = Field(
        "1000 per hour",
        description="Rate limit of failed logins per account, from addresses where it has not "
        "logged in before.",
    )

    requests_per_account: Rate = Field(
        "12000 per minute", description="Rate limit of requests per account."
    )
    projects_per_account: Positive = Field(1000, description="Quota of projects per account.")
    templates_per_account: Positive = Field(1000, description="Quota of templates per account.")

    @field_validator("jwt_secret")
    @classmethod
    def _is_long(cls, secret: Token) -> Token:
        if any(len(each) < _MIN_SIGNING_KEY for each in tokens(secret)):
            raise ValueError(f"must have at least {_MIN_SIGNING_KEY} characters")
        return secret

    @field_validator("smtp_url")
    @classmethod
    def _is_smtp(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not re.match(
            r"(smtp|smtps|smtp\+starttls)://[^\s/]+", url.get_secret_value()
        ):
            raise ValueError("must begin with smtp://, smtps:// or smtp+starttls://")
        return url


class SandboxSettings(Section):
    """Sandboxes, usage and bills."""

    sandbox_runtime: Literal["local", "e2b"] = Field(
        "local", description="Where sandboxes run: this machine, or E2B."
    )
    sandbox_isolation: Literal["bubblewrap", "none"] = Field(
        "bubblewrap", description="`none` runs programs without isolation: only for code you trust."
    )
    sandbox_processes: Positive = Field(
        128, description="Maximum of processes and threads per sandbox."
    )
    sandbox_storage_gb: float = Field(
        2, gt=0, le=1000, description="Maximum size of a sandbox's files and logs."
    )
    sandbox_git_networks: str = Field(
        "",
        description="Private networks that templates may be fetched from, such as 10.0.0.0/8.",
    )
    sandbox_git_ca_file: str | None = Field(
        None, description="CA certificates for fetching templates, beside the system's."
    )
    sandbox_git_timeout_sec: Seconds = Field(
        60, description="Timeout for fetching a template's repository."
    )
    sandbox_listen_timeout_sec: Seconds = Field(
        30, description="Timeout for a program to listen on its PORT."
    )
    quota_sandboxes: Positive = Field(5, description="Quota of running sandboxes per account.")
    sandboxes_per_account: Positive = Field(
        1000, description="Quota of sandboxes per account, running or not, until they are recycled."
    )
    quota_cpu: float = Field(
        8, gt=0, description="Quota of vCPU per account, over its running sandboxes."
    )
    quota_memory_gb: float = Field(
        16, gt=0, description="Quota of memory per account, over its running sandboxes."
    )
    snapshot_days: float = Field(
        30, gt=0, le=3650, description="Retention of a stopped sandbox's files."
    )
    snapshot_warning_hours: Hours = Field(
        24, description="How long before these files expire their owner is notified."
    )
    price_vcpu_hour: Price = Field(Decimal("0.05"), description="Price of one vCPU for an hour.")
    price_memory_gb_hour: Price = Field(
        Decimal("0.01"), description="Price of one GB of memory for an hour."
    )
    price_storage_gb_hour: Price = Field(
        Decimal("0.0001"), description="Price of one GB of stored files for an hour."
    )
    reconcile_interval_sec: Seconds = Field(60, description="Interval of the job `reconcile`.")
    ends_interval_sec: Seconds = Field(2, description="Interval of the job `ends`.")
    metrics_interval_sec: Seconds = Field(15, description="Interval of the job `measure`.")
    metrics_days: float = Field(30, gt=0, description="Retention of samples.")
    billing_interval_sec: Seconds = Field(3600, description="Interval of the job `billing`.")
    snapshots_interval_sec: Seconds = Field(3600, description="Interval of the job `snapshots`.")
