"""The bodies and answers of variables, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictStr

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.kit.patterns import NO_NUL, pattern
from sandyard.platform.http.fields import Answer, RequestBody
from sandyard.platform.variables.model import Variable

NAME = pattern(
    r"^[A-Za-z_][A-Za-z0-9_]*$", "must be letters, digits and _, and begin with no digit"
)
Value = Annotated[StrictStr, Field(max_length=32 * 1024, pattern=NO_NUL)]


class VariableBody(RequestBody):
    model_config = example(value="postgres://app@db/shop", secret=True)

    value: Value
    secret: StrictBool = Field(False, description="Its value is never shown again")  # noqa: FBT003


class VariableAnswer(Answer):
    model_config = example(
        name="DATABASE_URL",
        is_secret=True,
        value=None,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    name: str
    is_secret: bool
    value: str | None = Field(description="Null if it is secret")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, variable: Variable, value: str | None) -> Self:
        return super().of(variable, value=value)


class VariableList(PageAnswer):
    variables: list[VariableAnswer]
    next_cursor: str | None
