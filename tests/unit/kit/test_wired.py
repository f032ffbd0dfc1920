"""Classes that store what they are built with."""

from collections.abc import Callable
from typing import Any

import pytest

from sandyard.kit.wired import wired


@wired
class Job:
    name: str
    every_sec: int
    on_end: Callable[[], int] = lambda: 3
    is_late = False

    def __post_init__(self) -> None:
        self.title = f"{self.name} every {self.every_sec} s"


def test_fields_are_set_by_position_or_name_before_the_rest_is_derived() -> None:
    job = Job("sync", every_sec=5)
    assert (job.title, job.on_end()) == ("sync every 5 s", 3)
    assert Job("sync", 5, lambda: 4).on_end() == 4


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["sync"], {}),
        (["sync", 5, int, 1], {}),
        (["sync"], {"name": "sync", "every_sec": 5}),
        (["sync", 5], {"is_late": True}),
    ],
    ids=["missing", "one too many", "twice", "not a field"],
)
def test_other_arguments_are_refused(values: list[Any], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="takes name, every_sec, on_end"):
        Job(*values, **named)


def test_two_are_equal_only_if_they_are_the_same() -> None:
    one = Job("sync", 5)
    assert one != Job("sync", 5)
    assert len({one, one}) == 1
