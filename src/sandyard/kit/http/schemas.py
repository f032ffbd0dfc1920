"""Shared by the schemas of all parts: examples, pages, and paging parameters."""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar, get_args

import orjson
from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, WithJsonSchema

from sandyard.kit.paging import CURSOR_PATTERN, MAX_LIMIT, Page

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")]
Cursor = Annotated[
    str | None,
    Query(pattern=CURSOR_PATTERN, description="The `next_cursor` of the previous page"),
]


EXAMPLE = "x-example"
"""The schema key that holds the example, as JSON, until the document is written: FastAPI would drop
null values."""


def example(**values: Any) -> ConfigDict:
    """Configuration for a model with this example in OpenAPI."""
    return ConfigDict(json_schema_extra={EXAMPLE: orjson.dumps(values).decode()})


def strict_example(**values: Any) -> ConfigDict:
    """The same for a body that allows no other fields: a misspelt one is rejected, not ignored."""
    return ConfigDict(**example(**values), extra="forbid")


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    extra: Any = model.model_config["json_schema_extra"]
    values: dict[str, Any] = orjson.loads(extra[EXAMPLE])
    return values


def inline(kind: type[StrEnum]) -> WithJsonSchema:
    """Inlines an enum's schema, for enums whose name also stands for something else."""
    return WithJsonSchema({"type": "string", "enum": [member.value for member in kind]})


class AttributesAnswer(BaseModel):
    """Its fields are attributes of what it shows."""

    @classmethod
    def of(cls, shown: object) -> Self:
        return cls.model_validate(shown, from_attributes=True)


def _page_example(schema: dict[str, Any], model: type[BaseModel]) -> None:
    items, item = _items_of(model)
    shown = {items: [example_of(item)], "next_cursor": None}
    schema[EXAMPLE] = orjson.dumps(shown).decode()


class PageAnswer(BaseModel):
    """A page of a listing. A subclass has two fields: the items first, then `next_cursor`."""

    model_config = ConfigDict(json_schema_extra=_page_example)

    @classmethod
    def of(cls, page: Page[T], answer: Callable[[T], BaseModel]) -> Self:
        items, _ = _items_of(cls)
        shown = [answer(item) for item in page.items]
        return cls.model_validate({items: shown, "next_cursor": page.next_cursor})


def _items_of(model: type[BaseModel]) -> tuple[str, type[BaseModel]]:
    """The name of the field with the items, and the type of an item."""
    name, field = next(iter(model.model_fields.items()))
    return name, get_args(field.annotation)[0]


def _whole(value: object) -> object:
    """60.0 is an integer too, as in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


AS_JSON_HAS_IT = BeforeValidator(_whole)
"""For a StrictInt, after its bounds: accepts 60.0, but not true or "60"."""
LATEST = 4_102_444_800
"""The year 2100, in Unix seconds."""
UnixSeconds = Annotated[StrictInt, Field(ge=0, le=LATEST), AS_JSON_HAS_IT]
"""Unix seconds, up to the year 2100."""
