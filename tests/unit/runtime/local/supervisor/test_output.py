"""The last of what a process wrote, each byte known by its offset."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sandyard.runtime.local.supervisor.output import OutputRing


def test_streams_are_told_apart_and_reading_goes_on_at_an_offset(tmp_path: Path) -> None:
    ring = OutputRing(tmp_path, size=100)
    ring.write("stdout", b"one")
    ring.write("stdout", b"two")
    ring.write("stderr", b"bad")
    whole = ring.read(0, most=100)
    assert whole.chunks == (("stdout", 6), ("stderr", 3))
    assert (whole.data, whole.offset, whole.skipped) == (b"onetwobad", 9, 0)
    part = ring.read(4, most=3)
    assert (part.chunks, part.data, part.offset) == ((("stdout", 2), ("stderr", 1)), b"wob", 7)
    assert ring.read(9, most=100).chunks == ()
    assert ring.read(99, most=100).offset == 9, "nothing is there yet"
    ring.close()


def test_what_is_not_kept_any_more_is_skipped_and_told(tmp_path: Path) -> None:
    ring = OutputRing(tmp_path, size=10)
    ring.write("stdout", b"0123456789abc")
    kept = ring.read(0, most=100)
    assert (kept.data, kept.skipped, kept.offset) == (b"3456789abc", 3, 13)
    ring.write("stderr", b"XY")
    kept = ring.read(2, most=100)
    assert kept.chunks == (("stdout", 8), ("stderr", 2))
    assert kept.data.endswith(b"abcXY")
    ring.close()


def test_no_file_has_a_name(tmp_path: Path) -> None:
    ring = OutputRing(tmp_path, size=10)
    ring.write("stdout", b"x")
    assert list(tmp_path.iterdir()) == []
    ring.close()


@given(st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=40))))
def test_a_reader_that_keeps_up_misses_nothing(written: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ring = OutputRing(Path(folder), size=64)
        read, offset = b"", 0
        for stream, data in written:
            ring.write(stream, data)
            output_slice = ring.read(offset, most=64)
            assert sum(length for _, length in output_slice.chunks) == len(output_slice.data)
            assert output_slice.skipped == 0
            read, offset = read + output_slice.data, output_slice.offset
        ring.close()
        assert read == b"".join(data for _, data in written)
