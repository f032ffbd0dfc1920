"""What all nouns of the Platform are wired with."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.http.idempotency import IdempotentCalls
from sandyard.kit.jobs import JobRunner
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.idempotency import SqlRecords
from sandyard.kit.sql.transitions import SqlTransitions
from sandyard.platform.access.guard import AccessGuard, RequestRate
from sandyard.platform.access.login_tokens import Logins
from sandyard.platform.access.sql import SqlCredentialLookup
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.schema.tables import idempotency_records
from sandyard.platform.sessions.listening_ports.http import UrlOf
from sandyard.platform.variables.cipher import Cipher
from sandyard.settings import Settings
from sandyard.wiring.engines import SqlEngine

_KILOBYTES_OF_ANSWERS = "65536 per day"
"""What is stored of each account's answers to calls with an `Idempotency-Key`."""


@dataclass(frozen=True, slots=True)
class Shared:
    settings: Settings
    data_dir: Path
    database: Database
    transitions: SqlTransitions
    clock: Clock
    guard: AccessGuard
    logins: Logins
    runner: JobRunner
    url_of: UrlOf
    """The public URL of a sandbox's port."""


def shared_by_nouns(
    settings: Settings, data_dir: Path, engine: SqlEngine, clock: Clock, url_of: UrlOf
) -> Shared:
    chosen, database = settings.platform, engine.database
    logins = Logins(settings.secret("jwt_secret"), lifetime=timedelta(hours=chosen.login_hours))
    storage_url = settings.broker.rate_limit_storage_url
    guard = AccessGuard(
        SqlCredentialLookup(database),
        logins,
        RequestRate(chosen.requests_per_account, storage_url),
        RequestRate(chosen.writes_per_account, storage_url, name="writes"),
        clock=clock,
        streams=StreamLimit(chosen.streams_per_account),
        idempotency=IdempotentCalls(
            SqlRecords(database, idempotency_records),
            Cipher(settings.secret("secrets_key")),
            clock,
            RequestRate(_KILOBYTES_OF_ANSWERS, storage_url, name="answers"),
        ),
    )
    return Shared(
        settings,
        data_dir,
        database,
        platform_transitions(database, clock),
        clock,
        guard,
        logins,
        engine.runner,
        url_of,
    )
