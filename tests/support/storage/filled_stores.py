"""Stores with something of every kind in them, to be moved."""

import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import sqlalchemy as sa
from pydantic import SecretStr

from sandyard.broker.clients.model import ClientScope, Limits, SentToken, decide_token_added
from sandyard.broker.clients.model import decide_created as decide_client
from sandyard.broker.delivery.model import Attempt, StreamState, Webhook
from sandyard.broker.history.model import PoolSample
from sandyard.broker.pool.model import Claim, Status
from sandyard.broker.provider.model import Autoscaler, decide_first_provider
from sandyard.broker.queue.model import decide_queued
from sandyard.broker.reservations.model import Calendar, Reservation
from sandyard.broker.wiring.pool import Pool, opened_pool
from sandyard.kit.changes.events import Effect, Event
from sandyard.kit.changes.transitions import Cause, changed, created
from sandyard.kit.sql.database import Database
from sandyard.kit.sql.events import EventWriter
from sandyard.platform.schema import tables as platform_tables
from sandyard.previews.stores import tables as previews_tables
from sandyard.settings import Settings, load_settings
from sandyard.telemetry.model import Reading, Registration, decide_registration, new_api_key
from sandyard.telemetry.wiring.part import opened_stores
from tests.support.broker.pools import deleted, discoveries, ended, everything, quarantined
from tests.support.platform import rows as platform_rows

WEBHOOK = "whk-11111111111111111"
HELD = ("class-1", "learner-1")
"""A track and its key that hold a sandbox."""


def settings_on(
    *, postgres_url: str | None = None, dynamo_url: str | None = None, table: str = "Pool"
) -> Settings:
    """Of a server that may use any of the engines."""
    loaded = load_settings()
    database = None if postgres_url is None else SecretStr(postgres_url)
    dynamo = {"ddb_endpoint_url": dynamo_url, "ddb_table_name": table}
    return replace(
        loaded,
        server=loaded.server.model_copy(update={"database_url": database}),
        dynamo=loaded.dynamo.model_copy(update=dynamo),
        telemetry=loaded.telemetry.model_copy(update={"telemetry_table_prefix": f"{table}_"}),
    )


def by(actor: str = "operator") -> Cause:
    return Cause(actor, int(time.time() * 1000))


async def fill_broker(settings: Settings, data_dir: Path, *, sandboxes: int = 12) -> None:
    """On an engine that has the newest schema."""
    async with opened_pool(settings, data_dir) as pool:
        now = int(time.time())
        await pool.store.apply(discoveries(sandboxes, now=now))
        await pool.store.claim(Claim(*HELD, now))
        await pool.store.claim(Claim("class-2", "learner-1", now))
        rows = [each for each in await everything(pool.store) if each.status is Status.AVAILABLE]
        await pool.store.apply(
            [quarantined(rows[0], now), ended(rows[1], now), ended(rows[2], now)]
        )
        gone = await pool.store.find(rows[2].sandbox_id)
        await pool.store.apply([deleted(gone, now)])  # type: ignore[arg-type]
        await _fill_entities(pool, now)
        await _fill_records(pool, now)


async def _fill_entities(pool: Pool, now: int) -> None:
    cause = by()
    reservation = Reservation("rsv-1", 2, now, now + 3600, now, track_prefix="class-")
    over = Reservation("rsv-2", 1, now - 99, now - 9, now - 99, client="lab")
    client = decide_client(None, "lab", Limits(scopes=[ClientScope.ALLOCATE], max_leases=5), cause)
    token = SentToken("lab", "tok123456789", "secret")
    webhook = Webhook(WEBHOOK, "https://example.com/hook", now * 1000, secret="whsec_x")
    for transition in (
        decide_first_provider("https://provider.example.com", cause=cause),
        created(Autoscaler(asked="a b", asked_at=now), "autoscaler.changed", cause),
        created(reservation, "reservation.created", cause),
        created(over, "reservation.created", cause),
        created(Calendar("rsv-2"), "calendar.changed", cause),
        decide_queued(Claim("class-3", "waits", now), ticket_id="tkt-1", urgency=2),
        client,
        created(webhook, "webhook.created", cause),
    ):
        assert await pool.store.apply_together(transition)
    stored = await pool.store.find_reservation("rsv-2")
    assert stored is not None
    await pool.store.apply_together(
        changed(stored, replace(stored, ended_at=now), "reservation.ended", cause)
    )
    await pool.store.apply_together(decide_token_added(client.after, token, None, cause))


async def _fill_records(pool: Pool, now: int) -> None:
    events, position = await pool.store.events.read_after(None, limit=5)
    part = pool.store.events.part
    await pool.deliveries.save_stream(StreamState(WEBHOOK, part, 0, position))
    await pool.deliveries.save_stream(StreamState("s3", part, 0, position, now, "it fails"))
    attempts = [
        Attempt(
            f"att-{n}", WEBHOOK, each.event_id, each.event.kind, each.event.subject, now * 1000, 5
        )
        for n, each in enumerate(events)
    ]
    await pool.deliveries.log_attempts(attempts)
    await pool.clients.note_use("tok123456789", at=now)
    await pool.clients.take_slot("lab", HELD, most=5, per_hour=None, now_ms=now * 1000)
    await pool.clients.use_slot("lab", HELD)
    minute = now // 60 * 60
    sample = PoolSample(minute, dict.fromkeys(Status, 1), 3, 2)
    await pool.history.record(sample, kept_from=0)


async def fill_telemetry(
    settings: Settings, data_dir: Path, *, devices: int = 3, readings: int = 5
) -> None:
    async with opened_stores(settings, data_dir) as stores:
        now_ms = int(time.time() * 1000)
        cause = Cause("device", now_ms)
        key = new_api_key(key_id=str(uuid4()), api_key_hash="h" * 64, description="k", cause=cause)
        await stores.keys.apply(key)
        for number in range(devices):
            hardware_id = f"AA:BB:CC:DD:EE:{number:02X}"
            said = Registration(hardware_id, str(uuid4()), "1.0", {"sensors": ["t"]}, f"d{number}")
            new = decide_registration(None, said, confirmation_id=str(uuid4()), cause=cause)
            assert new is not None
            await stores.store.apply(new)
            sent = [
                Reading(
                    hardware_id,
                    now_ms - 1000 * each,
                    f"{number}-{each}",
                    str(uuid4()),
                    "1.0",
                    {"n": each, "t": 20.5 + each},
                    {"t": "ok"},
                    f"d{number}",
                )
                for each in range(readings)
            ]
            await stores.store.insert_readings(
                sent, devices={hardware_id: new.result}, now_ms=now_ms
            )


async def fill_platform(database: Database) -> None:
    await platform_rows.fill(database)
    await _write_event(database, platform_tables.events, "account.created", platform_rows.OWNER)


async def fill_previews(database: Database) -> None:
    at = platform_rows.NOON
    file = {"path": "index.html", "content": b"\x00<p>", "size": 4, "is_deleted": False}
    preview = {"account_id": platform_rows.OWNER, "created_at": at, "files_version": 1}

    def insert(connection: sa.Connection) -> None:
        row = previews_tables.previews.insert()
        connection.execute(row.values(project_id="prj-1", sequence=1, **preview))
        row = previews_tables.project_files.insert()
        connection.execute(row.values(project_id="prj-1", version=1, updated_at=at, **file))
        made = {"author": "system", "created_at": at, "message": "é", "files": 1, "size_bytes": 4}
        row = previews_tables.file_versions.insert()
        connection.execute(row.values(project_id="prj-1", version=1, **made))
        past = {"project_id": "prj-1", "hash": "ab", "size": 1}
        row = previews_tables.past_files.insert()
        connection.execute(row.values(path="index.html", version=0, until=1, **past))
        connection.execute(previews_tables.past_contents.insert().values(content=b"\x00", **past))
        shown = {"project_id": "prj-1", "path": "index.html", "hash": "ab"}
        connection.execute(previews_tables.published_files.insert().values(shown))
        site = {"version": 1, "mode": "files", "root": "", "fallback": None, "published_at": at}
        row = previews_tables.publications.insert()
        connection.execute(row.values(project_id="prj-1", **site))
        row = previews_tables.published_domains.insert()
        connection.execute(row.values(project_id="prj-1", domain="shop.example.org"))
        attempt = {"id": "a", "version": 2, "mode": "build", "until": at, "last_lines": ["é"]}
        row = previews_tables.publish_attempts.insert()
        connection.execute(row.values(project_id="prj-1", **attempt))

    await database.write(insert)
    await _write_event(database, previews_tables.events, "preview.created", "prj-1")


async def _write_event(database: Database, table: sa.Table, kind: str, subject: str) -> None:
    event = Event(kind, subject, 1, "system", int(time.time() * 1000), Effect.FULL, {"a": "é"})
    await database.write(lambda connection: EventWriter(table).write(connection, [event]))
