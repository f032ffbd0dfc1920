"""When host keys are made, announced and used."""

from datetime import UTC, datetime, timedelta

import pytest

from sandyard.platform.sessions.ssh.model import HostKey, in_force, next_generation

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)


def key(generation: int, *, days: int) -> HostKey:
    return HostKey(generation, "", BEGIN + timedelta(days=days))


@pytest.mark.parametrize(
    ("days", "generations"),
    [(0, [0]), (364, [0]), (365, [0, 1]), (394, [0, 1]), (395, [1]), (760, [2])],
)
def test_a_key_is_announced_for_a_month_and_then_used_alone(
    days: int, generations: list[int]
) -> None:
    keys = [key(0, days=0), key(1, days=365), key(2, days=730)]
    made = [each for each in keys if each.created_at <= BEGIN + timedelta(days=days)]

    now = BEGIN + timedelta(days=days)
    assert [each.generation for each in in_force(made, now)] == generations


@pytest.mark.parametrize(
    ("keys", "days", "made"),
    [
        ([], 0, 0),
        ([key(0, days=0)], 364, None),
        ([key(0, days=0)], 365, 1),
        ([key(0, days=0), key(1, days=365)], 365, None),
        ([key(0, days=0), key(1, days=365)], 730, 2),
    ],
)
def test_the_next_key_is_made_when_the_newest_is_old(
    keys: list[HostKey], days: int, made: int | None
) -> None:
    now = BEGIN + timedelta(days=days)
    assert next_generation(keys, now, rotated_after=YEAR) == made
