"""Reads the fields of a form; InvalidError names an invalid field."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sandyard.kit.errors import InvalidError

Form = Mapping[str, str]
_OMITTED = object()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a call's body, read from the form's field of the same name."""

    read: Callable[[Form, str], Any]
    empty: Any = _OMITTED
    """What is sent if it is empty: nothing, if not given."""


def body_of(form: Form, fields: Mapping[str, Field]) -> dict[str, Any]:
    values = {
        name: field.read(form, name) if name in form else field.empty
        for name, field in fields.items()
    }
    return {name: value for name, value in values.items() if value is not _OMITTED}


def whole_number(form: Form, name: str) -> int:
    try:
        return int(form.get(name, ""))
    except ValueError as error:
        raise InvalidError(f"{name}: must be a whole number.") from error


def number(form: Form, name: str) -> float:
    try:
        found = float(form.get(name, ""))
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise InvalidError(f"{name}: must be a number.")
    return found


def instant(form: Form, name: str) -> datetime:
    """The value of a date or time field, which the page sends with its viewer's time zone."""
    try:
        found = datetime.fromisoformat(form.get(name, ""))
    except ValueError as error:
        raise InvalidError(f"{name}: must be a date and a time.") from error
    if found.tzinfo is None:
        raise InvalidError(f"{name}: must have a time zone. Reload the page and try again.")
    return found


def _text(form: Form, name: str) -> str:
    return form[name]


def _words(form: Form, name: str) -> list[str]:
    return form[name].replace(",", " ").split()


TEXT = Field(_text)
TEXT_OR_NONE = Field(_text, None)
ANY_TEXT = Field(_text, "")
NUMBER = Field(number)
WHOLE = Field(whole_number)
WHOLE_OR_NONE = Field(whole_number, None)
INSTANT = Field(instant)
WORDS = Field(_words)
ANY_WORDS = Field(_words, ())
FLAG = Field(lambda _form, _name: True, empty=False)
"""A checkbox."""


def _binding(form: Form, name: str) -> dict[str, Any]:
    return {"hosts": _words(form, name)} | body_of(form, _BINDING)


_BINDING = dict.fromkeys(("methods", "paths", "headers", "query"), WORDS)
_BINDING |= {"sets_header": TEXT, "most_requests": WHOLE, "most_bytes": WHOLE}
VARIABLE = {"value": ANY_TEXT, "secret": FLAG, "binding": Field(_binding)}
"""Of a sandbox or project; the field `binding` has the hosts."""
