"""A data dir with as many sandboxes and devices as a large site has, written by bulk SQL."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pools import make_sqlite_pool

_NUMBERS = """WITH RECURSIVE
    number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :rows)"""
_FILL_SANDBOXES = """
INSERT INTO sandboxes (sandbox_id, name, template_id, owner_account_id, project_id, status, attempt)
{numbers}
SELECT printf('sbx-crowd%012d', n), printf('box %06d', n),
    (SELECT template_id FROM templates LIMIT 1), account_id,
    (SELECT project_id FROM projects WHERE owner_account_id = account_id LIMIT 1), 'stopped', 1
FROM number, (SELECT account_id FROM users WHERE username = :username)
"""
_FILL_USAGE = """
INSERT INTO sandbox_usage (usage_id, sandbox_id, user_account_id, start_time, end_time,
    hourly_rate, cost, created_at)
{numbers}, day(at) AS (SELECT strftime('%Y-%m-%dT%H:%M:%S.000000Z', 'now', '-1 hour'))
SELECT printf('usg-crowd%012d', n), printf('sbx-crowd%012d', n), account_id, at, at, 1, 1, at
FROM number, day, (SELECT account_id FROM users WHERE username = :username)
"""
_FILL_DEVICES = """
INSERT INTO devices (hardware_id, confirmation_id, capabilities, first_registered_at, last_seen_at,
    last_boot_id, firmware_version, friendly_name)
{numbers}
SELECT printf('02:00:%02X:%02X:%02X:%02X', n >> 24 & 255, n >> 16 & 255, n >> 8 & 255, n & 255),
    printf('00000000-0000-4000-8000-%012d', n), '{{}}', at, at,
    '00000000-0000-4000-8000-000000000000', '1.4.2', printf('Greenhouse %06d', n)
FROM number, (SELECT strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-1 day') AS at)
"""


@dataclass(frozen=True, slots=True)
class Crowd:
    pool: int
    sandboxes: int
    devices: int

    def fill(self, data_dir: Path, username: str) -> None:
        """While no server runs, after the first: the pool, every other one of it leased; sandboxes
        that this user has used; and devices."""
        of_user = {"rows": self.sandboxes, "username": username}
        _run(data_dir / "broker.db", "DELETE FROM tally", {})  # counted again with the new rows
        make_sqlite_pool(data_dir / "broker.db", self.pool, half_leased=True)
        _run(data_dir / "platform.db", _FILL_SANDBOXES, of_user)
        _run(data_dir / "platform.db", _FILL_USAGE, of_user)
        _run(data_dir / "telemetry.db", _FILL_DEVICES, {"rows": self.devices})


def _run(path: Path, statement: str, values: dict[str, object]) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement.format(numbers=_NUMBERS), values)
