"""Frozen dataclasses made quickly are the same as those that the class makes."""

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from sandyard.kit.changes.frozen import fast_constructor, quick_replace


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    tags: tuple[str, ...] = field(default=())

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class Checked:
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("negative")


def test_it_is_the_same_as_one_that_the_class_makes() -> None:
    made, usual = fast_constructor(Point)(1, 2, ("a",)), Point(1, 2, ("a",))
    assert type(made) is Point
    assert (made, hash(made), repr(made)) == (usual, hash(usual), repr(usual))
    assert (made.total, replace(made, x=5).x) == (3, 5)
    assert copy.copy(made) == pickle.loads(pickle.dumps(made)) == usual  # noqa: S301 - our own


def test_it_is_frozen() -> None:
    made = fast_constructor(Point)(1, 2, ())
    for each in fields(Point):
        with pytest.raises(FrozenInstanceError):
            setattr(made, each.name, 3)
    with pytest.raises(TypeError):
        fast_constructor(Point)(1)


def test_a_class_that_checks_its_values_makes_its_own() -> None:
    with pytest.raises(ValueError, match="negative"):
        fast_constructor(Checked)(-1)


def test_a_copy_with_changes_is_what_replace_makes() -> None:
    point = Point(1, tags=("a",))
    assert quick_replace(point, {"y": 5}) == replace(point, y=5)
    assert point == Point(1, 2, ("a",))
    with pytest.raises(ValueError, match="z"):
        quick_replace(point, {"z": 1})
