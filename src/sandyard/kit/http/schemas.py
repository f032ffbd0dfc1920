"""What the schemas of every part share: examples, pages, and the parameters that ask for them."""

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
"""Where a schema carries its example, as JSON, until the document writes it out: FastAPI leaves
out whatever is null."""


def example(**values: Any) -> ConfigDict:
    """The configuration of a model that has this example in the API's document."""
    return ConfigDict(json_schema_extra={EXAMPLE: orjson.dumps(values).decode()})


def strict_example(**values: Any) -> ConfigDict:
    """The same of a body that has no other fields: a misspelt one is told, not passed over."""
    return ConfigDict(**example(**values), extra="forbid")


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    extra: Any = model.model_config["json_schema_extra"]
    values: dict[str, Any] = orjson.loads(extra[EXAMPLE])
    return values


def inline(kind: type[StrEnum]) -> WithJsonSchema:
    """Writes an enum out where it is used, for enums whose name stands for something else too."""
    return WithJsonSchema({"type": "string", "enum": [member.value for member in kind]})


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
    """The name of the field with the items, and what each of them is."""
    name, field = next(iter(model.model_fields.items()))
    return name, get_args(field.annotation)[0]


def _whole(value: object) -> object:
    """60.0 is an integer too, as JSON has it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


AS_JSON_HAS_IT = BeforeValidator(_whole)
"""For a StrictInt, after its bounds: 60.0 is an integer, true and "60" are none."""
LATEST = 4_102_444_800
"""The year 2100, in Unix seconds."""
Moment = Annotated[StrictInt, Field(ge=0, le=LATEST), AS_JSON_HAS_IT]
"""Unix seconds, up to the year 2100."""
