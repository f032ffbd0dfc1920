from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from sandyard.entrypoints.move.digests import Digest

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def digest(*records: Any) -> Digest:
    found = Digest()
    found.add(records)
    return found


def test_the_order_of_records_and_of_keys_does_not_matter() -> None:
    first, second = (1, {"a": 1, "b": AT}, Decimal("1.50")), (2, b"x", None)
    assert digest(first, second) == digest(second, (1, {"b": AT, "a": 1}, Decimal("1.50")))


@pytest.mark.parametrize("other", [(1, "b"), (2, "a"), (1, None), (1, "a", None)])
def test_any_other_value_is_a_difference(other: Any) -> None:
    assert digest((1, "a")) != digest(other)


def test_a_record_that_is_there_twice_is_a_difference() -> None:
    assert digest((1, "a")) != digest((1, "a"), (1, "a"))
