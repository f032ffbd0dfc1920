"""Parses numbers and times of a form; InvalidError names an invalid field."""

import math
from collections.abc import Mapping
from datetime import datetime

from sandyard.kit.errors import InvalidError

Form = Mapping[str, str]


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
