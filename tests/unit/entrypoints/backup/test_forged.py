"""A file that somebody forged is refused as a whole, in one line, whatever it says."""

import gzip
import math
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandyard.entrypoints.backup.errors import ArchiveInvalidError
from sandyard.entrypoints.backup.restoring import restore_backup
from tests.unit.entrypoints.backup.forging import forged, member

ABOUT: dict[str, object] = {
    "version": "0.2.0",
    "made_at": "2026-01-01T00:00:00+00:00",
    "node": "n1",
    "schemas": {},
    "elsewhere": [],
    "has_secrets": False,
}
NODE = (member("node"), b"n1")


@contextmanager
def uncounted(_what: str, _total: int | None) -> Iterator[Callable[[int], None]]:
    yield lambda _: None


def restore(file: Path) -> Path:
    """Where it was restored to."""
    new = file.parent / "new"
    restore_backup(file, new, same_node=True, counting=uncounted)
    return new


def refused(file: Path, *, because: str = ".") -> bool:
    """Whether it was, and nothing of it is left."""
    with pytest.raises(ArchiveInvalidError, match=because):
        restore(file)
    new = file.parent / "new"
    return not new.exists() or [path.name for path in new.iterdir()] == ["lock"]


def saying(about: object) -> Callable[[dict[str, object]], object]:
    return lambda manifest: manifest | {"about": about}


def test_one_that_is_as_it_should_be_is_restored(tmp_path: Path) -> None:
    new = restore(forged(tmp_path, NODE, manifest=saying(ABOUT)))
    assert (new / "node").read_text() == "n1"


@pytest.mark.parametrize("missing", ABOUT)
def test_a_manifest_that_lacks_something_is_refused(tmp_path: Path, missing: str) -> None:
    about = {name: value for name, value in ABOUT.items() if name != missing}
    assert refused(forged(tmp_path, NODE, manifest=saying(about)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "odd",
    [
        {"version": 1},
        {"made_at": "yesterday"},
        {"made_at": 5},
        {"node": ["n1"]},
        {"schemas": [1]},
        {"schemas": 5},
        {"schemas": None},
        {"schemas": {"broker.db": 5}},
        {"schemas": {"broker.db": "\x1b[31m"}},
        {"schemas": {"broker.db": "0001"}},
        {"schemas": {"node": "0001"}},
        {"elsewhere": "broker"},
        {"elsewhere": ["\n"]},
        {"has_secrets": "yes"},
    ],
    ids=str,
)
def test_a_manifest_with_something_odd_is_refused(tmp_path: Path, odd: dict[str, Any]) -> None:
    assert refused(forged(tmp_path, NODE, manifest=saying(ABOUT | odd)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("text", [b"[" * 200_000, b"[]", b"5", b"{}", b"\xff", b'{"format":1}'])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: bytes) -> None:
    assert refused(forged(tmp_path, manifest=lambda it: it, text=text))


@pytest.mark.parametrize(
    "names",
    [
        ["node/x"],
        ["simulated-provider.json/x"],
        ["broker.db/x"],
        ["secrets"],
        ["runtime/snapshots"],
        ["secrets/a", "secrets/a/b"],
        ["secrets/a/b", "secrets/a"],
        ["secrets/" + "a" * 256],
        ["secrets/" + "/".join("a" * 600)],
    ],
    ids=lambda names: names[0][:30],
)
def test_files_that_can_not_be_there_are_refused(tmp_path: Path, names: list[str]) -> None:
    members = [(member(name), b"x") for name in names]
    assert refused(forged(tmp_path, NODE, *members, manifest=saying(ABOUT)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("time", [1e30, -1e30, math.inf, math.nan])
def test_times_that_no_clock_shows_are_refused(tmp_path: Path, time: float) -> None:
    info = member("secrets/x")
    info.pax_headers = {"mtime": str(time)}
    assert refused(forged(tmp_path, NODE, (info, b"x"), manifest=saying(ABOUT)))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("time", [0, -1.5, 2.0**39])
def test_other_times_are_not(tmp_path: Path, time: float) -> None:
    info = member("secrets/x")
    info.mtime = time
    assert restore(forged(tmp_path, NODE, (info, b"x"), manifest=saying(ABOUT))).exists()


@pytest.mark.parametrize("name", [b"", b"../../etc", b"a b", b"\xff", b"a\nb", b"a" * 10_000])
def test_a_node_without_a_proper_name_is_refused(tmp_path: Path, name: bytes) -> None:
    assert refused(forged(tmp_path, (member("node"), name), manifest=saying(ABOUT)))


def database(path: Path, *statements: str) -> bytes:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE numbers (n)")
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path.read_bytes()


VERSION = (
    "CREATE TABLE schema_version (version_num)",
    "INSERT INTO schema_version VALUES ('0001')",
)
ENDLESS = (
    "CREATE VIEW schema_version AS WITH RECURSIVE a(version_num) AS "
    "(SELECT 1 UNION ALL SELECT version_num + 1 FROM a) SELECT version_num FROM a"
)


def with_database(folder: Path, content: bytes, schema: str | None) -> Path:
    about = ABOUT | {"schemas": {"broker.db": schema}}
    return forged(folder, NODE, (member("broker.db"), content), manifest=saying(about))


def test_a_sound_database_is_restored_without_anything_beside_it(tmp_path: Path) -> None:
    content = database(tmp_path / "x.db", *VERSION)
    new = restore(with_database(tmp_path, content, "0001"))
    assert {path.name for path in new.iterdir()} == {"broker.db", "lock", "node"}
    assert (new / "broker.db").read_bytes() == content


def test_a_database_that_is_none_or_damaged_is_refused(tmp_path: Path) -> None:
    assert refused(with_database(tmp_path, b"not a database" * 100, None))
    content = database(tmp_path / "x.db", *VERSION)
    assert refused(with_database(tmp_path, content[: len(content) // 2], "0001"))
    assert refused(with_database(tmp_path, content[:4096] + b"\xab" * (len(content) - 4096), None))


def test_a_database_with_another_schema_than_the_manifest_says_is_refused(tmp_path: Path) -> None:
    content = database(tmp_path / "x.db", *VERSION)
    assert refused(with_database(tmp_path, content, None))
    assert refused(with_database(tmp_path, content, "0002"))
    assert refused(with_database(tmp_path, database(tmp_path / "y.db", ENDLESS), "0001"))


def test_a_database_that_the_manifest_does_not_name_is_refused(tmp_path: Path) -> None:
    members = (NODE, (member("broker.db"), database(tmp_path / "x.db")))
    assert refused(forged(tmp_path, *members, manifest=saying(ABOUT)))


def announcing(kind: bytes, size: int) -> bytes:
    """A header that says how long a header follows."""
    info = member("x", kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "content",
    [
        announcing(tarfile.XHDTYPE, 1 << 40),
        announcing(tarfile.XGLTYPE, 100),
        announcing(tarfile.GNUTYPE_LONGNAME, 1 << 40),
        announcing(tarfile.GNUTYPE_SPARSE, 100),
    ],
    ids=["pax", "global", "name", "sparse"],
)
def test_headers_that_grow_are_refused_before_they_are_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(content + bytes(1 << 20)))
    assert refused(tmp_path / "file", because="not a plain file")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_headers_of_headers_of_headers_are_refused(tmp_path: Path, kind: bytes) -> None:
    (tmp_path / "file").write_bytes(gzip.compress(announcing(kind, 0) * 5000))
    assert refused(tmp_path / "file")


def test_sparse_files_of_the_newer_kind_are_refused(tmp_path: Path) -> None:
    info = member("secrets/x")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    content = b"99999999999\n" + b"0\n" * 1000
    file = forged(tmp_path, NODE, (info, content), manifest=saying(ABOUT))
    assert refused(file, because="not a plain file")


def test_a_manifest_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    info = member("manifest.json")
    info.size = 1 << 40
    (tmp_path / "file").write_bytes(gzip.compress(info.tobuf() + b"[" * 1024))
    assert refused(tmp_path / "file", because="too large")
