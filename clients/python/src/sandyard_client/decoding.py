"""Decodes JSON to the models: unknown fields of newer servers are ignored, times become
`datetime`."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import datetime
from functools import cache
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def decode(model: type[T], data: Mapping[str, Any]) -> T:
    hints = _hints(cast("Any", model))
    return model(**{name: _value(hints[name], data[name]) for name in hints if name in data})


@cache
def _hints(model: Any) -> dict[str, Any]:
    return get_type_hints(model)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(hint) in (Union, UnionType):
        return _value(next(each for each in get_args(hint) if each is not type(None)), value)
    if get_origin(hint) is list:
        return [_value(get_args(hint)[0], each) for each in value]
    if hint is datetime:
        return datetime.fromisoformat(value)
    if is_dataclass(hint):
        return decode(hint, value)  # type: ignore[arg-type]
    return value
