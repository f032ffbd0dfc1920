"""Settings, read once from the environment and passed in; nothing here is a module-level instance.

Each section is frozen and belongs to one part. `describe` lists every variable for the docs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from sandyard.kit.errors import SandyardError

_MIN_SIGNING_KEY = 32


def _rate(text: str) -> str:
    from limits import parse

    try:
        parse(text)
    except ValueError as error:
        raise ValueError("must be like `10/minute` or `2 per second`") from error
    return text


Seconds = Annotated[float, Field(gt=0)]
Hours = Annotated[float, Field(gt=0, le=24 * 365)]
Positive = Annotated[int, Field(gt=0)]
Price = Annotated[Decimal, Field(ge=0, max_digits=18, decimal_places=6)]
Rate = Annotated[str, AfterValidator(_rate)]
Token = SecretStr | None

PARTS = ("broker", "telemetry", "platform", "previews")


class SettingsError(SandyardError):
    """A setting is wrong; each line of the message names a variable."""

    code = "INVALID_SETTINGS"


class Section(BaseSettings):
    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True, extra="ignore")


class ServerSettings(Section):
    """The process as a whole."""

    parts: str = Field(",".join(PARTS), description="What this process serves, comma-separated.")
    database_url: SecretStr | None = Field(
        None, description="PostgreSQL URL. Unset: SQLite files in the data dir."
    )
    database_pool_size: Positive = Field(16, description="Connections to PostgreSQL per process.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Least level that is logged."
    )
    log_format: Literal["json", "text"] = Field("json", description="`text` is for people.")
    metrics_port: int | None = Field(
        None, ge=1, le=65535, description="Another listener for `/metrics` alone."
    )
    enable_request_id: bool = Field(default=True, description="Answer with `X-Request-ID`.")
    job_lease_sec: Seconds = Field(60, description="When a job's process is taken for dead.")
    max_body_bytes: Positive = Field(1_048_576, description="Larger request bodies are refused.")
    body_timeout_sec: Seconds = Field(
        30, description="A request's body that takes longer is broken off."
    )
    cors_origins: str | None = Field(
        None,
        description="Origins whose pages may call, comma-separated, as `https://editor.example.com`.",
    )
    drain_sec: float = Field(
        1.0, ge=0, le=10, description="After SIGTERM, how long `/readyz` says 503 before closing."
    )

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(name for name in PARTS if name in self.parts.split(","))

    @property
    def allowed_origins(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.cors_origins or "").split(",")))

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, text: str | None) -> str | None:
        origins = [origin.strip() for origin in (text or "").split(",") if origin.strip()]
        if not all(re.fullmatch(r"https?://[^/\s*]+", origin) for origin in origins):
            raise ValueError("must be origins such as https://editor.example.com, comma-separated")
        return ",".join(origins) or None

    @field_validator("parts")
    @classmethod
    def _are_parts(cls, text: str) -> str:
        names = [name.strip() for name in text.split(",") if name.strip()]
        if not names or not set(names) <= set(PARTS):
            raise ValueError(f"must be some of {', '.join(PARTS)}, comma-separated")
        if "previews" in names and "platform" not in names:
            raise ValueError("previews show the platform's projects: name both")
        return ",".join(names)

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(
            ("postgresql://", "postgres://", "postgresql+asyncpg://")
        ):
            raise ValueError("must begin with postgresql:// (for SQLite, leave it unset)")
        return url


class BrokerSettings(Section):
    """The Broker."""

    broker_api_token: Token = Field(None, description="Tokens of tracks, comma-separated.")
    broker_admin_token: Token = Field(None, description="Tokens of operators, comma-separated.")
    api_base_path: str = Field(
        "/v1", pattern=r"^(/[A-Za-z0-9._-]+)+$", description="Where the Broker's calls are."
    )
    pool_store: Literal["sql", "dynamodb"] = Field("sql", description="The pool's engine.")
    k_candidates: Positive = Field(
        15, le=1000, description="DynamoDB: free sandboxes that a process reads ahead."
    )
    lab_duration_hours: Hours = Field(4, description="A lease's length, set when a row is made.")
    grace_period_minutes: float = Field(
        30, ge=0, description="How long after its end a forgotten lease is reclaimed."
    )
    sync_interval_sec: Seconds = Field(600, description="Between two syncs.")
    cleanup_interval_sec: Seconds = Field(300, description="Between two cleanups.")
    auto_expiry_interval_sec: Seconds = Field(300, description="Between two expiry runs.")
    cleanup_parallel: Positive = Field(10, description="Deletions at the provider at once.")
    deletion_retry_max_attempts: Positive = Field(
        3, description="Failed deletions before `deletion_failed`."
    )
    deletion_backoff_base_sec: Seconds = Field(300, description="Wait after the first failure.")
    deletion_backoff_max_sec: Seconds = Field(3600, description="Longest wait between attempts.")
    rate_limit_per_track: Rate | None = Field(
        None, description="Such as `10/minute`; unset: no limit."
    )
    rate_limit_storage_url: str = Field(
        "async+memory://", description="Where rates are counted, as the `limits` library names it."
    )


class ProviderSettings(Section):
    """The cloud provider (ENG CSP)."""

    csp_base_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="Unset: a built-in simulated provider."
    )
    csp_api_token: Token = Field(None, description="Our credential at the provider.")
    csp_dialect: Literal["generic", "infoblox"] = Field("generic", description="Its API's form.")
    csp_timeout_connect_sec: Seconds = Field(2, description="To connect.")
    csp_timeout_read_sec: Seconds = Field(5, description="Between two bytes of an answer.")
    csp_max_attempts: Positive = Field(3, description="Tries of one call, at passing faults.")
    backoff_base_ms: Positive = Field(100, description="First wait between tries, and its jitter.")
    backoff_max_ms: Positive = Field(5000, description="Longest wait between tries.")
    circuit_breaker_threshold: Positive = Field(
        5, description="Failures in a row that open the circuit."
    )
    circuit_breaker_timeout_sec: Seconds = Field(
        60, description="How long an open circuit leaves the provider alone."
    )


class TelemetrySettings(Section):
    """Telemetry."""

    telemetry_admin_token: Token = Field(None, description="Tokens of operators, comma-separated.")
    api_key_pepper: Token = Field(
        None, description="Hashed together with each API key; a new one ends all keys."
    )
    telemetry_store: Literal["sql", "dynamodb"] = Field("sql", description="Telemetry's engine.")
    telemetry_table_prefix: str = Field(
        "", pattern=r"^[A-Za-z0-9_.-]{0,200}$", description="DynamoDB: before the tables' names."
    )
    readings_retention_days: float = Field(
        90, gt=0, le=36500, description="How long a reading is kept, by its own time."
    )
    retention_interval_sec: Seconds = Field(
        3600, description="SQL: between two removals of what has expired."
    )


class PlatformSettings(Section):
    """The Platform."""

    jwt_secret: Token = Field(
        None, description="Signs logins; several, comma-separated: the first signs, each is taken."
    )
    login_hours: Hours = Field(24, description="How long a login lasts.")
    public_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s/]+",
        description="Where people reach this server, for mails. Unset: where it listens.",
    )
    smtp_url: SecretStr | None = Field(
        None,
        description="`smtp://`, `smtps://` or `smtp+starttls://`, with user and password if need "
        "be. Unset: mails are files in `outbox` in the data dir.",
    )
    mail_from: str = Field(
        "Sandyard <sandyard@localhost>",
        pattern=r"^[^\x00-\x1f\x7f]+$",
        description="The sender of mails.",
    )
    attempts_per_account: Rate = Field(
        "10 per 15 minutes", description="Logins by one name or address, or mails to one address."
    )
    attempts_per_address: Rate = Field(
        "100 per 15 minutes", description="The same from one address of the network."
    )
    client_address_header: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Behind a proxy: its header with the caller's address, as `X-Forwarded-For`.",
    )

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
        "bubblewrap", description="`none` runs programs unconfined: only for code you trust."
    )
    sandbox_processes: Positive = Field(128, description="Processes and threads of one sandbox.")
    sandbox_storage_gb: float = Field(
        2, gt=0, le=1000, description="Files and logs of one sandbox."
    )
    sandbox_git_networks: str = Field(
        "",
        description="Private networks that templates may be fetched from, such as 10.0.0.0/8.",
    )
    sandbox_git_ca_file: str | None = Field(
        None, description="Certificates to trust there, beside the system's."
    )
    sandbox_git_timeout_sec: Seconds = Field(60, description="To fetch a template's repository.")
    sandbox_listen_timeout_sec: Seconds = Field(
        30, description="For a program to listen on its PORT."
    )
    quota_sandboxes: Positive = Field(5, description="Sandboxes of an account that run at once.")
    quota_cpu: float = Field(8, gt=0, description="Their vCPU together.")
    quota_memory_gb: float = Field(16, gt=0, description="Their memory together.")
    snapshot_days: float = Field(
        30, gt=0, le=3650, description="How long the files of a stopped sandbox are kept."
    )
    snapshot_warning_hours: Hours = Field(
        24, description="How long before their end its owner is told."
    )
    price_vcpu_hour: Price = Field(Decimal("0.05"), description="Of one vCPU for an hour.")
    price_memory_gb_hour: Price = Field(
        Decimal("0.01"), description="Of one GB of memory for an hour."
    )
    price_storage_gb_hour: Price = Field(
        Decimal("0.0001"), description="Of one GB of kept files for an hour."
    )
    reconcile_interval_sec: Seconds = Field(
        60, description="Between two comparisons of rows and what really runs."
    )
    ends_interval_sec: Seconds = Field(2, description="Between two looks for ended sandboxes.")
    metrics_interval_sec: Seconds = Field(15, description="Between two samples of a sandbox.")
    metrics_days: float = Field(30, gt=0, description="How long samples are kept.")
    billing_interval_sec: Seconds = Field(3600, description="Between two runs of billing.")
    snapshots_interval_sec: Seconds = Field(
        3600, description="Between two looks for snapshots that expire."
    )


class PreviewSettings(Section):
    """Previews."""

    preview_provider: Literal["local", "e2b"] = Field(
        "local", description="Where previews run: this machine, or E2B."
    )
    preview_ttl_minutes: float = Field(30, gt=0, le=1440, description="How long a preview lives.")
    previews_per_account: Positive = Field(
        5, description="Previews of an account that run at once."
    )
    preview_max_files: Positive = Field(500, description="Files of one project.")
    preview_max_bytes: Positive = Field(5_242_880, description="Their bytes together.")
    preview_attempt_sec: Seconds = Field(
        180, description="How long the making of a preview may take before another tries."
    )
    preview_reads: Literal["new", "old"] = Field(
        "new", description="Read `sandbox_info`, or the columns that it replaces."
    )
    preview_sweep_interval_sec: Seconds = Field(
        60, description="Between two looks for previews of nobody's, such as a deleted project's."
    )


class E2bSettings(Section):
    """E2B, for what is set to it."""

    e2b_api_key: Token = Field(None, description="Our key at E2B.")
    e2b_api_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="Another control API than E2B's own."
    )
    e2b_sandbox_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="Where its sandboxes take files."
    )
    e2b_template: str = Field("base", description="The template of its sandboxes.")
    e2b_port: int = Field(
        8080, ge=1, le=65535, description="The port that shows a preview, or a sandbox's program."
    )


class DynamoSettings(Section):
    """DynamoDB, for the parts that are set to it. Credentials come by the usual AWS chain."""

    ddb_table_name: str = Field("SandboxPool", description="The Broker's table.")
    ddb_gsi1_name: str = Field("StatusIndex", description="Index on status.")
    ddb_gsi2_name: str = Field("TrackIndex", description="Index on allocated_to_track.")
    ddb_gsi3_name: str = Field("IdempotencyIndex", description="Index on idempotency_key.")
    ddb_endpoint_url: str | None = Field(
        None, pattern=r"^https?://[^\s/]+", description="Another engine than AWS's own."
    )
    aws_region: str = Field("us-east-1", description="The tables' region.")


@dataclass(frozen=True, slots=True)
class Settings:
    server: ServerSettings
    broker: BrokerSettings
    provider: ProviderSettings
    dynamo: DynamoSettings
    telemetry: TelemetrySettings
    platform: PlatformSettings
    sandboxes: SandboxSettings
    previews: PreviewSettings
    e2b: E2bSettings

    def only(self, part: str) -> "Settings":
        """The same, for a process that runs this part alone."""
        return replace(self, server=self.server.model_copy(update={"parts": part}))


def load_settings() -> Settings:
    """All sections from the environment, or one SettingsError with a line per mistake."""
    mistakes: list[str] = []
    sections: dict[str, Section] = {}
    for name, section in _sections().items():
        try:
            sections[name] = section()
        except ValidationError as error:
            mistakes.extend(_lines(error))
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return Settings(**sections)  # type: ignore[arg-type]


def tokens(value: SecretStr | None) -> tuple[str, ...]:
    """The comma-separated tokens of a variable, so that an old and a new one may both hold."""
    if value is None:
        return ()
    return tuple(token.strip() for token in value.get_secret_value().split(",") if token.strip())


def describe() -> Iterator[tuple[str, str, str, str]]:
    """Section, variable, default and meaning of every setting."""
    for section in _sections().values():
        for name, field in section.model_fields.items():
            default = "" if field.default is None else str(field.default)
            title = " ".join((section.__doc__ or "").split()).rstrip(".")
            yield title, name.upper(), default, field.description or ""


def _sections() -> dict[str, type[Section]]:
    return get_type_hints(Settings)


def _lines(error: ValidationError) -> Iterator[str]:
    for mistake in error.errors(include_input=False, include_url=False):
        where: Any = mistake["loc"][0] if mistake["loc"] else "settings"
        yield f"{str(where).upper()}: {mistake['msg'].removeprefix('Value error, ')}"
