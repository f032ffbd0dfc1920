"""Frozen dataclasses that are made thousands of times a second."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, TypeVar

T = TypeVar("T")


def maker_of(kind: type[T]) -> Callable[..., T]:
    """What makes one from the values of all its fields in their order, as the class itself does.

    A frozen class sets each field past its own `__setattr__`, which is most of the time that it
    takes. So the values are set on a draft with the same slots, which then becomes one of `kind`.
    """
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    if getattr(kind, "__slots__", None) != tuple(names) or hasattr(kind, "__post_init__"):
        return kind
    code = [
        f"def set_all(self, {', '.join(names)}):",
        *(f"    self.{name} = {name}" for name in names),
    ]
    made: dict[str, Any] = {}
    exec("\n".join(code), made)  # noqa: S102 - our own names, as dataclasses do it
    draft = type("Draft", (), {"__slots__": tuple(names), "__init__": made["set_all"]})

    def make(*values: Any) -> T:
        one: Any = draft(*values)
        one.__class__ = kind
        return one  # type: ignore[no-any-return]

    return make


@dataclass(frozen=True, slots=True)
class _Fields:
    read: Callable[[Any], tuple[Any, ...]]
    positions: Mapping[str, int]
    make: Callable[..., Any]


_KNOWN: dict[type, _Fields] = {}


def quick_replace(one: T, changes: Mapping[str, Any]) -> T:
    """As `dataclasses.replace`, in a fifth of its time, for a class of two fields or more."""
    kind = type(one)
    known = _KNOWN.get(kind)
    if known is None:
        names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
        positions = {name: index for index, name in enumerate(names)}
        known = _KNOWN[kind] = _Fields(attrgetter(*names), positions, maker_of(kind))
    values = list(known.read(one))
    for name, value in changes.items():
        values[known.positions[name]] = value
    made: T = known.make(*values)
    return made
