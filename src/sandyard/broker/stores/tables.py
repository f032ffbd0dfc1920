"""The pool's SQL tables. An entity's columns are its fields."""

import sqlalchemy as sa

from sandyard.broker.clients.model import Client
from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.history.model import PoolSample
from sandyard.broker.pool.model import Sandbox
from sandyard.broker.provider.model import Autoscaler, ProviderBinding
from sandyard.broker.queue.model import Ticket
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.kit.sql.column_types import BIG_ID, JsonText, Varchar, byte_ordered, columns_of
from sandyard.kit.sql.columns import event_table, index, metadata_of, numbers, optional, required
from sandyard.kit.sql.job_leases import circuit_table, job_table
from sandyard.kit.sql.transitions import EntityTable

SCHEMA = "broker"
DELETED = "deleted"
"""The status of a tombstone. It replaces the row, so that the primary key prevents a deleted
sandbox from being inserted again."""

metadata = metadata_of(SCHEMA)

_TRACK = Varchar(128)


def _relevant(columns: str, name: str, *, unique: bool = False) -> sa.Index:
    """A partial index of the few rows that have the first column."""
    return index(columns, name=name, where=f"{columns.split(',')[0]} IS NOT NULL", unique=unique)


def _only_if(status: str, column: str, name: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(f"(status = '{status}') = ({column} IS NOT NULL)", name)


sandboxes = sa.Table(
    "sandboxes",
    metadata,
    *columns_of(
        Sandbox,
        sandbox_id=_TRACK,
        name=byte_ordered(),
        status=Varchar(20),
        stale_reason=Varchar(20),
        allocated_to_track=_TRACK,
        idempotency_key=_TRACK,
        track_name=_TRACK,
        reserved_for=Varchar(64),
        reservation_id=Varchar(64),
        probe_failures=sa.Integer,
        deletion_retry_count=sa.Integer,
        defaults={
            "allocated_at": "0",
            "probe_failures": "0",
            "deletion_retry_count": "0",
            "replacements": "0",
            "sequence": "1",
        },
    ),
    *optional(_TRACK, "lease_track", "lease_key"),
    *optional(sa.BigInteger, "lease_ends_at", "deleted_at", "kept_until"),
    _only_if("allocated", "lease_track", "lease_track"),
    _only_if("allocated", "lease_key", "lease_key"),
    _only_if("allocated", "lease_ends_at", "lease_ends"),
    _only_if("pending_deletion", "next_attempt_at", "next"),
    _only_if("deleted", "kept_until", "kept"),
    _relevant("lease_track, lease_key", "sandboxes_lease", unique=True),
    _relevant("lease_ends_at, sandbox_id", "sandboxes_ending"),
    _relevant("next_attempt_at, sandbox_id", "sandboxes_deletable"),
    _relevant("kept_until, sandbox_id", "sandboxes_buried"),
    _relevant("allocated_to_track, sandbox_id", "sandboxes_by_track"),
    _relevant("reserved_for, name, sandbox_id", "sandboxes_reserved"),
    index("status, name, sandbox_id", name="sandboxes_by_status"),
)
"""The lease is `lease_track`, `lease_key` and `lease_ends_at`: set exactly while the row is
`allocated`, which the database checks. Likewise only a row in `pending_deletion` has a
`next_attempt_at`, and only a tombstone a `kept_until`. Each has its own index, and queries use
these columns rather than `status`: without statistics, a planner considers any condition on
`status` selective and reads every lease."""

status_counts = sa.Table(
    "tally",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
    *required(Varchar(20), "status"),
    *required(sa.BigInteger, "change"),
)
"""Changes of the number of rows per state, a line per transaction: their sum is the count. Adding a
line never waits for another transaction, as a single counter would."""

tickets = sa.Table(
    "tickets",
    metadata,
    *columns_of(
        Ticket,
        ticket_id=byte_ordered(64),
        track_id=_TRACK,
        key=_TRACK,
        urgency=sa.Integer,
        name_prefix=_TRACK,
        sandbox_id=_TRACK,
        client=_TRACK,
    ),
    index("track_id, key", name="tickets_of", unique=True),
    index("urgency, ticket_id", name="tickets_by_place"),
)
"""The queue. A unique index over (track, key) allows one ticket for each."""

reservations = sa.Table(
    "reservations",
    metadata,
    *columns_of(
        Reservation,
        reservation_id=Varchar(64),
        count=sa.Integer,
        track_prefix=_TRACK,
        client=_TRACK,
        name_prefix=_TRACK,
        kept=sa.Integer,
    ),
    index("ends_at, reservation_id", name="reservations_by_end"),
    index("ended_at", name="reservations_open", where="ended_at IS NULL"),
)

calendars = sa.Table(
    "calendars",
    metadata,
    *columns_of(Calendar, calendar=Varchar(64), last_reservation_id=Varchar(64)),
)
"""One row, which every new reservation changes."""

autoscalers = sa.Table(
    "autoscalers",
    metadata,
    *columns_of(
        Autoscaler,
        autoscaler=Varchar(64),
        level=Varchar(20),
        created=sa.Integer,
        failures=sa.Integer,
        sync_failures=sa.Integer,
    ),
)
"""The autoscaler's state: one row."""

bindings = sa.Table("bindings", metadata, *columns_of(ProviderBinding, pool=Varchar(64)))
"""The pool's provider: one row."""

webhooks = sa.Table(
    "webhooks",
    metadata,
    *columns_of(
        Webhook,
        webhook_id=Varchar(64),
        url=sa.Text,
        kinds=sa.Text,
        note=sa.Text,
        disabled_reason=sa.Text,
        secret=sa.Text,
        old_secret=sa.Text,
    ),
)

streams = sa.Table(
    "sink_streams",
    metadata,
    *columns_of(
        StreamState,
        primary_key=("sink", "part"),
        sink=Varchar(64),
        part=Varchar(32),
        position=Varchar(64),
        last_error=sa.Text,
    ),
)
"""Each sink's position in the log of each part."""

attempts = sa.Table(
    "webhook_attempts",
    metadata,
    *columns_of(
        Attempt,
        primary_key=("attempt_id",),
        attempt_id=Varchar(64),
        webhook_id=Varchar(64),
        event_id=Varchar(26),
        kind=Varchar(64),
        subject=Varchar(128),
        status=sa.Integer,
        error=sa.Text,
    ),
    index("webhook_id, at_ms, attempt_id", name="webhook_attempts_of"),
    index("at_ms", name="webhook_attempts_by_time"),
)

clients = sa.Table(
    "clients",
    metadata,
    *columns_of(Client, client_id=_TRACK, scopes=sa.Text, track_prefix=_TRACK, rate=Varchar(64)),
)

token_uses = sa.Table(
    "client_token_uses",
    metadata,
    sa.Column("token_id", Varchar(32), primary_key=True),
    *required(sa.BigInteger, "used_at"),
)

client_counts = sa.Table(
    "client_counts",
    metadata,
    sa.Column("client", Varchar(64), primary_key=True),
    *required(sa.BigInteger, "leases"),
    *numbers("hour", "taken", kind=sa.BigInteger, default="0"),
)
"""How many slots each client has, and how many it has taken in the hour when it last took one,
changed in the transactions that take and free them."""

client_slots = sa.Table(
    "client_slots",
    metadata,
    sa.Column("client", Varchar(64), primary_key=True),
    sa.Column("track_id", _TRACK, primary_key=True),
    sa.Column("key", _TRACK, primary_key=True),
    *required(sa.BigInteger, "taken_at_ms"),
    *optional(sa.BigInteger, "paid_hour"),
)
"""Current and requested leases, and holds, that count towards a client's limit. `paid_hour` is the
hour whose budget has paid for it, until its lease is made."""

samples = sa.Table(
    "pool_samples", metadata, *columns_of(PoolSample, primary_key=("at",), counts=JsonText)
)
"""The pool's samples of the last day, one per minute."""

jobs = job_table(metadata)
circuits = circuit_table(metadata)
events = event_table(metadata)

BINDINGS = EntityTable(ProviderBinding, bindings)
TICKETS = EntityTable(Ticket, tickets)
WEBHOOKS = EntityTable(Webhook, webhooks)
CLIENTS = EntityTable(Client, clients)
RESERVATIONS = EntityTable(Reservation, reservations)
CALENDARS = EntityTable(Calendar, calendars)
AUTOSCALERS = EntityTable(Autoscaler, autoscalers)
