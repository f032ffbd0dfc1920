"""Bodies and queries of the control API, each validated by its model."""

import math
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
)
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from sandyard.e2b_api.envd import connect
from sandyard.e2b_api.errors import InvalidRequestError, NotOfferedError
from sandyard.kit.patterns import in_words

MOST_LISTED = 100
_MOST_BYTES = 1 << 20


def _without_fraction(value: Any) -> Any:
    is_whole = isinstance(value, float) and math.isfinite(value) and value >= 0
    return int(value) if is_whole else value


Number = Annotated[int, Field(ge=0), BeforeValidator(_without_fraction)]
"""0 or more; fractions are cut off."""
Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Texts = Annotated[dict[Text, Text], Field(max_length=100)]


def _refuse(value: Any, field: ValidationInfo) -> None:
    if value:
        name = to_camel(str(field.field_name))
        raise NotOfferedError(f"This server does not offer `{name}` of E2B's API.")


Refused = Annotated[Any, AfterValidator(_refuse)]
"""A field that this server does not offer: it must be empty."""


class Body(BaseModel):
    """Unknown fields are ignored, and no value is converted."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True)


class Query(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, frozen=True)


class PageQuery(Query):
    limit: int = Field(default=MOST_LISTED, ge=1, le=MOST_LISTED)
    next_token: str | None = None


B = TypeVar("B", bound=Body)
Q = TypeVar("Q", bound=Query)


async def body_of(request: Request, model: type[B]) -> B:
    """Raises InvalidRequestError, BodyTooLargeError."""
    return parsed(await connect.body_of(request, most_bytes=_MOST_BYTES), model)


def parsed(content: bytes, model: type[B]) -> B:
    """Raises InvalidRequestError."""
    try:
        return model.model_validate_json(content or b"{}")
    except ValidationError as error:
        raise _invalid(error) from error


def query_of(request: Request, model: type[Q]) -> Q:
    """Empty parameters count as missing, repeated ones as a list. Raises InvalidRequestError."""
    sent = request.query_params
    given = {name: ",".join(filter(None, sent.getlist(name))) for name in sent}
    try:
        return model.model_validate({name: value for name, value in given.items() if value})
    except ValidationError as error:
        raise _invalid(error) from error


def _invalid(error: ValidationError) -> InvalidRequestError:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(each) for each in first["loc"])
    return InvalidRequestError(f"`{field}` is not valid: {in_words(first)}." if field else None)
