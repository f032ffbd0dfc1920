"""Numbers and times of a form; InvalidError names the field that has none."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

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


def utc_seconds(form: Form, name: str) -> int:
    """Of a field for date and time, which the page has in UTC."""
    try:
        return int(datetime.fromisoformat(form.get(name, "")).replace(tzinfo=UTC).timestamp())
    except (ValueError, OverflowError) as error:
        raise InvalidError(f"{name}: must be a date and a time.") from error
