"""Shared by the schemas of all parts: examples, pages, paging parameters, and error responses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self, TypedDict, TypeGuard, TypeVar, get_args, get_origin

import orjson
from fastapi import Depends, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, WithJsonSchema
from pydantic_core import PydanticUndefined

from sandyard.kit.errors import RateLimitedError, SandyardError
from sandyard.kit.http.error_statuses import MEANINGS, STATUS
from sandyard.kit.paging import CURSOR_PATTERN, DEFAULT_LIMIT, MAX_LIMIT, Page

T = TypeVar("T")
Cursor = Annotated[
    str | None,
    Query(pattern=CURSOR_PATTERN, description="The `next_cursor` of the previous page"),
]


class PageRequest(TypedDict):
    limit: int
    cursor: str | None


async def _paging(
    limit: Annotated[
        int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")
    ] = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> PageRequest:
    return {"limit": limit, "cursor": cursor}


Paging = Annotated[PageRequest, Depends(_paging)]
"""The parameters of a listing, to be passed on as `**paging`."""
EXAMPLE = "x-example"
"""The schema key that holds the example, as JSON, until the document is written: FastAPI would drop
null values."""


def example(**values: Any) -> ConfigDict:
    """The example of a model that is not that of its fields."""
    return ConfigDict(json_schema_extra={EXAMPLE: orjson.dumps(values).decode()})


@dataclass(frozen=True, slots=True)
class _FieldExample:
    value: Any

    def __call__(self, schema: dict[str, Any]) -> None:
        """Leaves the schema of the field as it is: the model's has the example."""


def eg(value: Any, default: Any = PydanticUndefined, **options: Any) -> Any:
    """A field, with what it has in the example of its model."""
    return Field(default, json_schema_extra=_FieldExample(value), **options)


def example_of(model: type[BaseModel]) -> dict[str, Any]:
    """Of the fields: their own, those of their models, or null if they are required and may be."""
    extra: Any = model.model_config.get("json_schema_extra")
    values: dict[str, Any] = orjson.loads(extra[EXAMPLE]) if isinstance(extra, dict) else {}
    if values:
        return values
    for own_name, field in model.model_fields.items():
        name, arguments = field.serialization_alias or own_name, get_args(field.annotation)
        if isinstance(field.json_schema_extra, _FieldExample):
            values[name] = field.json_schema_extra.value
        elif field.is_required() and type(None) in arguments:
            values[name] = None
        elif get_origin(field.annotation) is list and _is_documented(arguments[0]):
            values[name] = [example_of(arguments[0])]
        elif _is_documented(field.annotation):
            values[name] = example_of(field.annotation)
    return values


def _is_documented(kind: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, Documented)


def _field_examples(schema: dict[str, Any], model: type[BaseModel]) -> None:
    if values := example_of(model):
        schema[EXAMPLE] = orjson.dumps(values).decode()


class Documented(BaseModel):
    """Its example has those of its fields."""

    model_config = ConfigDict(json_schema_extra=_field_examples)


def inline(kind: type[StrEnum]) -> WithJsonSchema:
    """Inlines an enum's schema, for enums whose name also stands for something else."""
    return WithJsonSchema({"type": "string", "enum": [member.value for member in kind]})


class StrictBody(Documented):
    """Allows no other fields: a misspelt one is rejected, not ignored."""

    model_config = ConfigDict(extra="forbid")


class AttributesAnswer(Documented):
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


class ErrorBody(BaseModel):
    code: str = Field(description="Stable; programs may rely on it")
    message: str = Field(description="What happened and what to do next")
    request_id: str
    retry_after: int | None = Field(None, description="Seconds; only if a retry can help")
    details: dict[str, Any] | None = None


class ErrorAnswer(BaseModel):
    error: ErrorBody


_EXAMPLES: Mapping[int, SandyardError] = {
    **{status: kind() for kind, status in reversed([*STATUS.items()])},
    429: RateLimitedError(retry_after=12),
}
_ERROR_SCHEMA = {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}


def _error_content(status: int) -> dict[str, Any]:
    return {"application/json": {"schema": _ERROR_SCHEMA, "example": _example(_EXAMPLES[status])}}


def errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of these error responses, and of those that any call may return.

    They refer to the schema by name; the document adds it. With a model, FastAPI would prepare it
    for each status of each route, which takes a tenth of the startup time.
    """
    return {
        status: {"description": MEANINGS[status], "content": _error_content(status)}
        for status in sorted({*statuses, 400, 413, 500})
    }


def _example(error: SandyardError) -> dict[str, Any]:
    shown = {"code": error.code, "message": error.message, "request_id": "req_0f3a9c5b7d1e2468"}
    waiting = {} if error.retry_after is None else {"retry_after": error.retry_after}
    return {"error": shown | waiting}
