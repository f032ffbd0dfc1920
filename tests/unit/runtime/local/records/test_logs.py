"""Logs in pieces: bounded, in order, and followed across the pieces' ends."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandyard.runtime.local.records.logs import LogWriter, read
from sandyard.runtime.model import Log


def writer_in(folder: Path, limit_bytes: int) -> LogWriter:
    return LogWriter(folder / "logs", limit_bytes=limit_bytes)


def test_the_last_lines_are_kept_and_the_size_is_bounded(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, 4000)
    for number in range(10_000):
        writer.write(b"line %d\n" % number)
    writer.close()
    log = read(tmp_path / "logs", None, limit_bytes=4000)
    assert log.content.endswith(b"line 9997\nline 9998\nline 9999\n")
    assert len(log.content) <= 4000
    assert log.begins_at + len(log.content) == sum(len(b"line %d\n" % n) for n in range(10_000))
    assert read(tmp_path / "nowhere", 7, limit_bytes=4000) == Log(7, b"")


def test_a_reader_goes_on_where_it_was_and_passes_over_what_was_dropped(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, 400)
    writer.write(b"first\n")
    log = read(tmp_path / "logs", 0, limit_bytes=400)
    assert log == Log(0, b"first\n")
    writer.write(b"second\n")
    assert read(tmp_path / "logs", 6, limit_bytes=400) == Log(6, b"second\n")
    for number in range(1000):
        writer.write(b"line %d\n" % number)
    writer.close()
    late = read(tmp_path / "logs", 13, limit_bytes=400)
    assert late.begins_at > 13
    assert late.content.endswith(b"line 999\n")


def test_whoever_writes_too_fast_waits(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "logs", limit_bytes=10_000, bytes_per_sec=1000)
    pauses = [writer.write(bytes(500)) for _ in range(6)]
    writer.close()
    assert pauses[0] == pauses[1] == 0
    assert 1.5 < pauses[-1] < 2.5


@given(st.lists(st.binary(max_size=200), max_size=40))
def test_nothing_is_lost_or_doubled_while_it_fits(chunks: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        writer = writer_in(Path(folder), 40_000)
        seen = b""
        for chunk in chunks:
            writer.write(chunk)
            seen += read(Path(folder) / "logs", len(seen), limit_bytes=40_000).content
        writer.close()
        assert seen == b"".join(chunks)
