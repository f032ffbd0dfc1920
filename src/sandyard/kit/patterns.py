"""Patterns of fields, each with a readable message for input that does not match."""

from collections.abc import Mapping
from typing import Any

_WORDS: dict[str, str] = {}


def pattern(regex: str, words: str) -> str:
    """The regular expression unchanged; `words` is its error message: "must be …"."""
    _WORDS[regex] = words
    return regex


def in_words(mistake: Mapping[str, Any]) -> str:
    """The message of a pydantic error, without a regular expression."""
    if mistake["type"] == "string_pattern_mismatch":
        return _WORDS.get(mistake["ctx"]["pattern"], "has a form that is not taken here")
    message: str = mistake["msg"]
    return message.removeprefix("Value error, ")


NO_NUL = pattern(r"^[^\x00]*$", "must have no NUL")
"""For free text: PostgreSQL stores none with a NUL."""


def has_words(regex: str) -> bool:
    return regex in _WORDS
