"""Kinds of fields that several of the Platform's bodies and queries share."""

from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from fastapi import Query
from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictStr,
)

from sandyard.kit.paging import CURSOR_PATTERN, MAX_LIMIT

VISIBLE = r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$"
"""Anything that can be seen, on one line, with no space at its ends."""
_PROSE = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
"""Text of several lines."""
SEARCHABLE = r"^[^\x00-\x1f\x7f-\x9f]+$"

Name = Annotated[StrictStr, Field(min_length=1, max_length=255, pattern=VISIBLE)]
ShortName = Annotated[StrictStr, Field(min_length=1, max_length=100, pattern=VISIBLE)]
Description = Annotated[StrictStr, Field(max_length=10_000, pattern=_PROSE)]
Prose = Annotated[StrictStr, Field(min_length=1, max_length=10_000, pattern=_PROSE)]

Money = Annotated[Decimal, PlainSerializer(lambda amount: f"{amount:.6f}", return_type=str)]
"""An amount in an answer: a text with six places."""

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Cursor = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]
Search = Annotated[
    str | None,
    Query(min_length=1, max_length=100, pattern=SEARCHABLE, description="Some letters of it"),
]


def unchanged() -> Any:
    """The default of a field that may be left out, but not be null; nobody ever sees it."""
    return Field(default=None, json_schema_extra=_without_default)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


class RequestBody(BaseModel):
    """A body that refuses fields which it does not know."""

    model_config = ConfigDict(extra="forbid")


def _no_number(value: object) -> object:
    """A number is no time here: whether it counts seconds or years nobody can tell."""
    if isinstance(value, str) and value.replace(".", "", 1).lstrip("+-").isdigit():
        raise ValueError("a date in the form of ISO 8601 is wanted, not a number")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number)]
Day = Annotated[date, BeforeValidator(_no_number)]
