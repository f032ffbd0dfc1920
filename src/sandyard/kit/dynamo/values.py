"""Conversion of items between Python values and DynamoDB's wire format."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

Item = dict[str, Any]
"""An item in plain Python values: str, int, float, bool, and mappings and lists of them."""


def wire(item: Mapping[str, Any]) -> dict[str, Any]:
    """Python values in wire format; attributes that are None are omitted."""
    return {
        name: {"S": value} if type(value) is str else wire_value(value)  # most are strings
        for name, value in item.items()
        if value is not None
    }


def plain(item: Mapping[str, Any]) -> Item:
    return {name: _plain_value(value) for name, value in item.items()}


def wire_value(value: Any) -> dict[str, Any]:
    return _WIRES.get(type(value), _text)(value)


def _text(value: Any) -> dict[str, Any]:
    return {"S": str(value)}


_WIRES: dict[type, Callable[[Any], dict[str, Any]]] = {
    str: lambda value: {"S": value},
    int: lambda value: {"N": str(value)},
    float: lambda value: {"N": repr(value)},
    Decimal: lambda value: {"N": str(value)},
    bool: lambda value: {"BOOL": value},
    dict: lambda value: {"M": wire(value)},
    list: lambda value: {"L": [wire_value(each) for each in value]},
}


def _plain_value(value: Mapping[str, Any]) -> Any:
    [(kind, inner)] = value.items()
    match kind:
        case "N":
            return int(inner) if inner.lstrip("-").isdigit() else float(inner)
        case "M":
            return plain(inner)
        case "L":
            return [_plain_value(each) for each in inner]
        case "NULL":
            return None
        case _:
            return inner


def plain_or_none(item: Mapping[str, Any] | None) -> Item | None:
    return plain(item) if item else None
