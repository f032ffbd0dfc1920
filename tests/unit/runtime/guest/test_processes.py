"""What a process writes is kept in part, and read on from where one was."""

import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandyard.runtime.guest.processes import Frame, Reader, Writer

PIECE = bytes(64 * 1024)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with closing(Reader(str(tmp_path))) as reader:
        yield reader


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with closing(Writer(str(tmp_path))) as writer:
        yield writer


def test_a_reader_goes_on_from_where_it_was(tmp_path: Path, writer: Writer, reader: Reader) -> None:
    assert list(reader.frames()) == []
    writer.write("stdout", b"one")
    assert list(reader.frames()) == [Frame("stdout", b"one", 0)]
    writer.write("stderr", b"two")
    assert list(reader.frames()) == [Frame("stderr", b"two", 3)]
    assert list(reader.frames()) == []


def test_of_much_the_last_is_kept_and_who_reads_along_misses_nothing(
    tmp_path: Path, writer: Writer, reader: Reader
) -> None:
    seen = []
    for number in range(200):
        writer.write("stdout", PIECE)
        if number % 7 == 0:
            seen += list(reader.frames())
    seen += list(reader.frames())
    assert [frame.begins_at for frame in seen] == [n * len(PIECE) for n in range(200)]
    with closing(Reader(str(tmp_path))) as newcomer:
        late = list(newcomer.frames())
    assert 30 <= len(late) <= 70
    assert late[-1].ends_at == 200 * len(PIECE)


def test_a_frame_that_is_being_written_comes_when_it_is_whole(
    tmp_path: Path, writer: Writer, reader: Reader
) -> None:
    writer.write("stdout", b"one")
    list(reader.frames())
    writer.write("stdout", b"two")
    [file] = tmp_path.iterdir()
    whole = file.read_bytes()
    for length in (len(whole) - 7, len(whole) - 1):
        file.write_bytes(whole[:length])
        assert list(reader.frames()) == []
    file.write_bytes(whole)
    assert list(reader.frames()) == [Frame("stdout", b"two", 3)]


def test_what_the_disk_does_not_take_is_a_gap(
    tmp_path: Path, writer: Writer, reader: Reader
) -> None:
    writer.write("stdout", b"one")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        writer.write("stdout", b"missing")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    writer.write("stdout", b"two")
    assert list(reader.frames()) == [Frame("stdout", b"one", 0), Frame("stdout", b"two", 10)]
