"""The pool's SQL tables, as the queries see them; the migrations make them. An entity's columns are
its fields."""

import sqlalchemy as sa

from sandyard.broker.clients.model import Client
from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.history.model import PoolSample
from sandyard.broker.pool.model import Sandbox
from sandyard.broker.provider.model import Autoscaler, ProviderBinding
from sandyard.broker.queue.model import Ticket
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.kit.sql.column_types import BIG_ID, JsonText, columns_of
from sandyard.kit.sql.events import event_table
from sandyard.kit.sql.job_leases import circuit_table, job_table
from sandyard.kit.sql.transitions import EntityTable

SCHEMA = "broker"
DELETED = "deleted"
"""The status of a tombstone. It replaces the row, so that the primary key prevents a deleted
sandbox from being inserted again."""

metadata = sa.MetaData(schema=SCHEMA)

sandboxes = sa.Table(
    "sandboxes",
    metadata,
    *columns_of(Sandbox),
    sa.Column("lease_track", sa.String),
    sa.Column("lease_key", sa.String),
    sa.Column("lease_ends_at", sa.BigInteger),
    sa.Column("deleted_at", sa.BigInteger),
    sa.Column("kept_until", sa.BigInteger),
)
"""The lease is `lease_track`, `lease_key` and `lease_ends_at`: set exactly while the row is
`allocated`, which the database checks. Likewise only a row in `pending_deletion` has a
`next_attempt_at`, and only a tombstone a `kept_until`. Each has its own index, and queries use
these columns rather than `status`: without statistics, a planner considers any condition on
`status` selective and reads every lease."""

status_counts = sa.Table(
    "tally",
    metadata,
    sa.Column("id", BIG_ID, primary_key=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("change", sa.BigInteger, nullable=False),
)
"""Changes of the number of rows per state, a line per transaction: their sum is the count. Adding a
line never waits for another transaction, as a single counter would."""

tickets = sa.Table("tickets", metadata, *columns_of(Ticket))
"""The queue. A unique index over (track, key) allows one ticket for each."""

reservations = sa.Table("reservations", metadata, *columns_of(Reservation))

calendars = sa.Table("calendars", metadata, *columns_of(Calendar))
"""One row, which every new reservation changes."""

autoscalers = sa.Table("autoscalers", metadata, *columns_of(Autoscaler))
"""The autoscaler's state: one row."""

bindings = sa.Table("bindings", metadata, *columns_of(ProviderBinding))
"""The pool's provider: one row."""

webhooks = sa.Table("webhooks", metadata, *columns_of(Webhook))

streams = sa.Table("sink_streams", metadata, *columns_of(StreamState, key=("sink", "part")))
"""Each sink's position in the log of each part."""

attempts = sa.Table("webhook_attempts", metadata, *columns_of(Attempt, key=("attempt_id",)))

clients = sa.Table("clients", metadata, *columns_of(Client))

token_uses = sa.Table(
    "client_token_uses",
    metadata,
    sa.Column("token_id", sa.String(32), primary_key=True),
    sa.Column("used_at", sa.BigInteger, nullable=False),
)

client_counts = sa.Table(
    "client_counts",
    metadata,
    sa.Column("client", sa.String(64), primary_key=True),
    sa.Column("leases", sa.BigInteger, nullable=False),
    sa.Column("hour", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("taken", sa.BigInteger, nullable=False, server_default="0"),
)
"""How many slots each client has, and how many it has taken in the hour when it last took one,
changed in the transactions that take and free them."""

client_slots = sa.Table(
    "client_slots",
    metadata,
    sa.Column("client", sa.String(64), primary_key=True),
    sa.Column("track_id", sa.String(128), primary_key=True),
    sa.Column("key", sa.String(128), primary_key=True),
    sa.Column("taken_at_ms", sa.BigInteger, nullable=False),
    sa.Column("paid_hour", sa.BigInteger),
)
"""Current and requested leases, and holds, that count towards a client's limit. `paid_hour` is the
hour whose budget has paid for it, until its lease is made."""

samples = sa.Table("pool_samples", metadata, *columns_of(PoolSample, key=("at",), counts=JsonText))
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
