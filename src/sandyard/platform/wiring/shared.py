"""What all nouns of the Platform are wired with."""

from datetime import timedelta
from pathlib import Path

from sandyard.kit.clock import Clock
from sandyard.kit.concurrency.streams import StreamLimit
from sandyard.kit.http.idempotency import IdempotentCalls
from sandyard.kit.sql.idempotency import SqlRecords
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


class Shared:
    """`url_of` gives the public URL of a sandbox's port."""

    def __init__(
        self, settings: Settings, data_dir: Path, engine: SqlEngine, clock: Clock, url_of: UrlOf
    ) -> None:
        self.settings, self.data_dir, self.clock, self.url_of = settings, data_dir, clock, url_of
        self.database, self.runner = engine.database, engine.runner
        self.transitions = platform_transitions(self.database, clock)
        chosen, storage_url = settings.platform, settings.broker.rate_limit_storage_url
        lifetime = timedelta(hours=chosen.login_hours)
        self.logins = Logins(settings.secret("jwt_secret"), lifetime=lifetime)
        self.guard = AccessGuard(
            SqlCredentialLookup(self.database),
            self.logins,
            RequestRate(chosen.requests_per_account, storage_url),
            RequestRate(chosen.writes_per_account, storage_url, name="writes"),
            clock=clock,
            streams=StreamLimit(chosen.streams_per_account),
            idempotency=IdempotentCalls(
                SqlRecords(self.database, idempotency_records),
                Cipher(settings.secret("secrets_key")),
                clock,
                RequestRate(_KILOBYTES_OF_ANSWERS, storage_url, name="answers"),
            ),
        )
