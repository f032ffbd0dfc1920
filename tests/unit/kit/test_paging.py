"""Cursors are opaque, and only their own listing takes them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandyard.kit.paging import (
    InvalidCursorError,
    _seal,
    decode_cursor,
    encode_cursor,
    position_in,
)

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.lists(TEXT | st.integers(-(2**53), 2**53), min_size=1))
def test_a_cursor_comes_back_as_it_went(position: list[object]) -> None:
    assert decode_cursor("listing", encode_cursor("listing", position)) == position


@given(st.text())
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursorError):
        decode_cursor("listing", text)


def test_a_changed_or_foreign_cursor_is_refused() -> None:
    cursor = encode_cursor("one", ["a"])
    with pytest.raises(InvalidCursorError):
        decode_cursor("two", cursor)
    for place in range(len(cursor)):
        other = "A" if cursor[place] != "A" else "B"
        with pytest.raises(InvalidCursorError):
            decode_cursor("one", cursor[:place] + other + cursor[place + 1 :])


def test_a_cursor_with_a_nul_or_without_json_is_refused() -> None:
    with pytest.raises(InvalidCursorError):
        decode_cursor("listing", encode_cursor("listing", ["a\0b"]))
    for body in (b"", b"[", b"{}", b'"text"'):
        sealed = base64.urlsafe_b64encode(_seal("listing", body) + body).decode().rstrip("=")
        with pytest.raises(InvalidCursorError):
            decode_cursor("listing", sealed)


def test_a_position_has_the_types_of_its_listing() -> None:
    assert position_in("listing", None, str) is None
    assert position_in("listing", encode_cursor("listing", [3, "a"]), int, str) == [3, "a"]
    for position in ([], [3], ["a", 3], [True, "a"], [3, ""], [3, "a", "b"]):
        with pytest.raises(InvalidCursorError):
            position_in("listing", encode_cursor("listing", position), int, str)
