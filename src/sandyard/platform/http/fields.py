"""Kinds of fields that several of the Platform's bodies and queries share."""

import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Self

from fastapi import Query
from pydantic import (
    AwareDatetime,
    BeforeValidator,
    Field,
    PlainSerializer,
    StrictStr,
    WithJsonSchema,
)

from sandyard.kit.http.schemas import Documented, StrictBody
from sandyard.kit.patterns import pattern

_UNSEEN = (
    r"\x00-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b\u200e\u200f"
    r"\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
)
"""Control and format characters, of which many are invisible or turn the text around. The joiners
U+200C and U+200D are allowed: Persian and emoji need them."""
VISIBLE = pattern(
    rf"^[^\s{_UNSEEN}]([^{_UNSEEN}]*[^\s{_UNSEEN}])?$",
    "must be one line, with no space at its ends and no control or invisible characters",
)
"""Any printable characters, on one line, without spaces at the ends."""
_PROSE = pattern(
    r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$",
    "must have no control characters but tabs and new lines",
)
"""Text of several lines."""
SEARCHABLE = pattern(r"^[^\x00-\x1f\x7f-\x9f]+$", "must be one line, with no control characters")
ID = pattern(r"^[a-z0-9-]+$", "must be lower-case letters, digits and hyphens")

Name = Annotated[StrictStr, Field(min_length=1, max_length=255, pattern=VISIBLE)]
ShortName = Annotated[StrictStr, Field(min_length=1, max_length=100, pattern=VISIBLE)]
Description = Annotated[StrictStr, Field(max_length=10_000, pattern=_PROSE)]
Prose = Annotated[StrictStr, Field(min_length=1, max_length=10_000, pattern=_PROSE)]

_Exact = Annotated[Decimal, PlainSerializer(lambda exact: f"{exact:.6f}", return_type=str)]
Money = _Exact
"""An amount in an answer: a string with six decimal places."""
Rate = Annotated[Decimal, PlainSerializer(lambda rate: _decimal(rate), return_type=str)]
"""A rate in an answer: a string with at least six decimal places, and as many as it has."""
Currency = Annotated[str, Field(description="Of the amounts, by its code of ISO 4217")]
Quantity = _Exact
"""Hours of vCPU, or of GB, in the same form."""


def _without_loss(value: object) -> object:
    """A number with decimals loses some on its way through JSON; a text does not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, float | bool):
        raise ValueError("must be a decimal number as a string, or a whole number")  # noqa: TRY004
    if isinstance(value, str) and not re.fullmatch(_AMOUNT, value, re.ASCII):
        raise ValueError("must have up to 12 digits, and up to 6 after the decimal point")
    return value


_AMOUNT = r"[0-9]{1,12}(\.[0-9]{1,6})?"
Amount = Annotated[
    Decimal,
    Field(ge=0, max_digits=18, decimal_places=6),
    BeforeValidator(_without_loss),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": f"^{_AMOUNT}$"},
                {"type": "integer", "minimum": 0, "maximum": 999_999_999_999},
            ]
        }
    ),
]
"""Money, exactly."""


def _decimal(exact: Decimal) -> str:
    return f"{exact:.6f}" if exact == exact.quantize(Decimal("0.000001")) else f"{exact:f}"


def _other_id(description: str) -> Any:
    return Query(max_length=25, pattern=ID, description=description)


OfProject = Annotated[str | None, _other_id("Those of one project, by its id")]
OfSandbox = Annotated[str | None, _other_id("Those of one sandbox, by its id")]
OfTemplate = Annotated[str | None, _other_id("Those of one template, by its id")]
Search = Annotated[
    str | None,
    Query(min_length=1, max_length=100, pattern=SEARCHABLE, description="Some letters of it"),
]


def whole(value: object) -> object:
    """60.0 is an integer too, as in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def unchanged() -> Any:
    """The default of a field that may be omitted, but not null; it is never visible."""
    return Field(default=None, json_schema_extra=_without_default)


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


class Answer(Documented):
    """An answer with the fields of entities."""

    @classmethod
    def of(cls, *entities: Any, **others: Any) -> Self:
        """Each field that is not among the others is that of the first entity which has it."""
        names = [str(each.validation_alias or name) for name, each in cls.model_fields.items()]
        shown = {
            name: getattr(entity, name)
            for entity in reversed(entities)
            for name in names
            if hasattr(entity, name)
        }
        return cls.model_validate(shown | others, from_attributes=True)


class RequestBody(StrictBody):
    def sent(self) -> Any:
        return {name: getattr(self, name) for name in self.model_fields_set}


class NewNamedBody(RequestBody):
    """What is made with a name and perhaps a description."""

    name: Name
    description: Description | None = None


class NamedBody(RequestBody):
    """Fields that are left out stay as they are."""

    name: Name = unchanged()
    description: Description | None = None


def _no_number(value: object) -> object:
    """Numbers are refused as times: they might be seconds or years."""
    if isinstance(value, str) and value.replace(".", "", 1).lstrip("+-").isdigit():
        raise ValueError("must be an ISO 8601 date, not a number")
    return value


Timestamp = Annotated[AwareDatetime, BeforeValidator(_no_number)]
Day = Annotated[date, BeforeValidator(_no_number)]
