"""Databases in use, copied as they were at one moment."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from sandyard.entrypoints.backup.databases import copy_database, reading_together, schema_version
from sandyard.entrypoints.backup.errors import BackupError


def new_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("CREATE TABLE numbers (n INTEGER)")
        database.commit()


def highest(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT coalesce(max(n), 0), count(*) FROM numbers").fetchone()
    assert found[0] == found[1], "a copy has everything up to its last number"
    return int(found[0])


@contextmanager
def writing_to(first: Path, second: Path, note: Path) -> Iterator[threading.Event]:
    """Somebody who writes each number to the first, then to the second, then beside them; the
    event tells that the first of them was."""
    begun, stop = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def write() -> None:
        try:
            with (
                closing(sqlite3.connect(first, timeout=5)) as one,
                closing(sqlite3.connect(second, timeout=5)) as other,
            ):
                number = 0
                while not stop.is_set():
                    number += 1
                    for database in (one, other):
                        database.execute("INSERT INTO numbers VALUES (?)", (number,))
                        database.commit()
                    note.with_suffix(".new").write_text(str(number))
                    note.with_suffix(".new").replace(note)
                    begun.set()
        except Exception as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield begun
    finally:
        stop.set()
        thread.join()
    assert failures == []


def test_all_are_of_one_moment_while_they_are_written(tmp_path: Path) -> None:
    first, second, note = (tmp_path / name for name in ("first.db", "second.db", "note"))
    for path in (first, second):
        new_database(path)
    noted: list[str] = []
    with writing_to(first, second, note) as begun:
        assert begun.wait(30)
        for attempt in range(5):
            with reading_together(
                [first, second], while_locked=lambda: noted.append(note.read_text())
            ) as connections:
                seen = noted[-1]
                while note.read_text() == seen:  # until more was written than the copies may show
                    threading.Event().wait(0.001)
                copies = [tmp_path / f"{attempt}-{n}.db" for n in range(2)]
                for connection, copy in zip(connections, copies, strict=True):
                    on_progress: list[int] = []
                    copy_database(connection, copy, on_progress.append)
                    assert sum(on_progress) == copy.stat().st_size
            one, other = map(highest, copies)
            assert other <= one <= other + 1
            assert int(seen) in (other - 1, other)


def test_a_damaged_database_is_told(tmp_path: Path) -> None:
    path = tmp_path / "broker.db"
    new_database(path)
    with closing(sqlite3.connect(path)) as database:
        database.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(5000)])
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[8192:12288] = bytes([0xAB]) * 4096
    path.write_bytes(content)
    with (
        reading_together([path], while_locked=lambda: None) as [connection],
        pytest.raises(BackupError),
    ):
        copy_database(connection, tmp_path / "copy.db", lambda _: None)


def test_what_is_no_database_or_not_there_is_told(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"hello" * 1000)
    for name in ("x.db", "y.db"):
        with (
            pytest.raises(BackupError),
            reading_together([tmp_path / name], while_locked=lambda: None),
        ):
            pytest.fail("there is nothing to read")
    assert not (tmp_path / "y.db").exists()


def test_a_database_without_a_schema_has_no_version(tmp_path: Path) -> None:
    new_database(tmp_path / "x.db")
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        assert schema_version(database) is None
        database.execute("CREATE TABLE schema_version (version_num TEXT)")
        assert schema_version(database) is None
        database.execute("INSERT INTO schema_version VALUES ('0002')")
        assert schema_version(database) == "0002"
