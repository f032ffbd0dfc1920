"""Lines of what arrives in pieces."""

import pytest

from sandyard.kit.lines import LineReader


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_lines_do_not_depend_on_the_pieces(size: int) -> None:
    content, lines = b"one\ntwo\n\nthe rest", LineReader(100)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert found + lines.end() == [b"one", b"two", b"", b"the rest"]
    assert lines.end() == []


@pytest.mark.parametrize("size", [1, 4, 7, 100])
def test_a_long_line_is_cut(size: int) -> None:
    content, lines = b"x" * 25 + b"\nend\n", LineReader(10)
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    found = [line for piece in pieces for line in lines.feed(piece)]
    assert found == [b"x" * 10, b"x" * 10, b"x" * 5, b"end"]
