"""Readings waiting on disk until the server has them: a SQLite file, durable after each call."""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandyard_client.errors import BufferUnusableError

Reading = Mapping[str, Any]
_FULL = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS waiting (
    number INTEGER PRIMARY KEY AUTOINCREMENT, batch_id TEXT NOT NULL UNIQUE, reading TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rejected (
    batch_id TEXT PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, reading TEXT NOT NULL);
"""


class DiskFullError(BufferUnusableError):
    """There is no room to write it; nothing of it has changed."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A reading that the server rejected permanently, and why."""

    batch_id: str
    code: str
    message: str
    reading: Reading


class ReadingBuffer:
    """Threads and processes may share a file: readings that two of them send are stored once.
    DiskFullError from any write if the disk is full, BufferUnusableError if the file is damaged or
    can't be opened; the file is unchanged."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._settled: set[str] = set()
        """Readings that the server has, but that could not be removed here."""
        self._path = path
        try:
            self._database = sqlite3.connect(path, check_same_thread=False, timeout=30)
        except sqlite3.OperationalError as error:
            raise BufferUnusableError(f"{path}: {error}") from error
        try:
            with self._translated():
                # The journal stays allocated, so that a full disk rarely prevents removals.
                self._database.execute("PRAGMA journal_mode=PERSIST")
                self._database.execute("PRAGMA synchronous=FULL")
                self._database.executescript(_SCHEMA)
        except BaseException:
            self._database.close()
            raise

    def add(self, readings: Sequence[Reading]) -> None:
        """All of them or none; one that is already waiting is not added again."""
        rows = [(each["batch_id"], json.dumps(each)) for each in readings]
        statement = "INSERT OR IGNORE INTO waiting (batch_id, reading) VALUES (?, ?)"
        with self._lock, self._translated():
            self._database.executemany(statement, rows)

    def oldest(self, count: int) -> list[Reading]:
        """The next to send, in the order in which they were added."""
        with self._lock, self._translated():
            rows = self._database.execute(
                "SELECT batch_id, reading FROM waiting ORDER BY number LIMIT ?",
                (count + len(self._settled),),
            ).fetchall()
        waiting = [json.loads(text) for batch_id, text in rows if batch_id not in self._settled]
        return waiting[:count]

    def settle(self, batch_ids: Sequence[str], rejected: Sequence[Rejection]) -> None:
        """Remove what the server has; store what it rejected separately. If the disk is full they
        stay, but this object does not send them again."""
        gone = [*batch_ids, *(each.batch_id for each in rejected)]
        rows = [
            (each.batch_id, each.code, each.message, json.dumps(each.reading)) for each in rejected
        ]
        try:
            with self._lock, self._translated():
                self._database.executemany(
                    "INSERT OR REPLACE INTO rejected VALUES (?, ?, ?, ?)", rows
                )
                self._database.executemany(
                    "DELETE FROM waiting WHERE batch_id = ?", [(each,) for each in gone]
                )
            self._settled.difference_update(gone)
        except DiskFullError:
            self._settled.update(gone)

    def rejections(self) -> list[Rejection]:
        with self._lock, self._translated():
            rows = self._database.execute("SELECT * FROM rejected ORDER BY batch_id").fetchall()
        return [Rejection(row[0], row[1], row[2], json.loads(row[3])) for row in rows]

    def forget_rejections(self) -> None:
        with self._lock, self._translated():
            self._database.execute("DELETE FROM rejected")

    def __len__(self) -> int:
        with self._lock, self._translated():
            [count] = self._database.execute("SELECT count(*) FROM waiting").fetchone()
        return int(count) - len(self._settled)

    def close(self) -> None:
        with self._lock:
            self._database.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """One transaction."""
        try:
            with self._database:
                yield
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _FULL:
                raise DiskFullError(f"{self._path}: {error}") from error
            raise BufferUnusableError(f"{self._path}: {error}") from error
