"""What the Labs page derives from the pool's counts and samples."""

import pytest

from sandyard.console.screens.labs import exhausted_in


@pytest.mark.parametrize(
    ("available", "estimated_sec", "shown"),
    [
        (0, 840, "empty now"),
        (0, 0, "empty now"),
        (0, None, "empty now"),
        (4, 840, "14 min"),
        (4, 0, None),
        (4, None, None),
    ],
)
def test_an_estimate_older_than_the_count_does_not_contradict_it(
    available: int, estimated_sec: int | None, shown: str | None
) -> None:
    assert exhausted_in(available, estimated_sec) == shown
