"""Logs in pieces: bounded, in order, and followed across the pieces' ends."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandyard.runtime.local.logs import LogReader, LogWriter, tail


def writer_in(folder: Path, limit_bytes: int) -> LogWriter:
    return LogWriter(folder / "logs", limit_bytes=limit_bytes)


def test_the_last_lines_are_kept_and_the_size_is_bounded(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, 4000)
    for number in range(10_000):
        writer.write(b"line %d\n" % number)
    writer.close()
    assert tail(tmp_path / "logs", 3) == ["line 9997", "line 9998", "line 9999"]
    assert sum(piece.stat().st_size for piece in (tmp_path / "logs").iterdir()) <= 4000
    assert tail(tmp_path / "nowhere", 3) == []


def test_a_reader_goes_on_where_it_was(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, 400)
    reader = LogReader(tmp_path / "logs")
    seen: list[str] = []
    for number in range(200):
        writer.write(b"line %d\n" % number)
        seen += reader.lines()
    writer.write(b"unfin")
    seen += reader.lines()
    writer.write(b"ished \xff")
    seen += reader.lines(all_written=True)
    writer.close()
    assert seen == [*(f"line {number}" for number in range(200)), "unfinished �"]


def test_a_reader_that_is_too_slow_passes_over_what_was_dropped(tmp_path: Path) -> None:
    writer = writer_in(tmp_path, 400)
    reader = LogReader(tmp_path / "logs")
    writer.write(b"first\nhalf a li")
    assert list(reader.lines()) == ["first"]
    for number in range(1000):
        writer.write(b"line %d\n" % number)
    seen = list(reader.lines())
    writer.close()
    assert seen[-1] == "line 999"
    assert not any("half" in line for line in seen)


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
        reader = LogReader(Path(folder) / "logs")
        seen: list[str] = []
        for chunk in chunks:
            writer.write(chunk)
            seen += reader.lines()
        seen += reader.lines(all_written=True)
        writer.close()
        whole = b"".join(chunks).split(b"\n")
        expected = whole[:-1] + ([whole[-1]] if whole[-1] else [])
        assert seen == [line.decode(errors="replace").rstrip("\r") for line in expected]
