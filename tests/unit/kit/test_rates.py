"""Rates mean what the `limits` library takes them for."""

import pytest
from limits import parse

from sandyard.kit.rates import Rate


@pytest.mark.parametrize(
    "text", ["10/minute", "2 per second", "10 per 15 minutes", "1000 per hour", "5/2 days"]
)
def test_a_rate_is_the_same_for_both(text: str) -> None:
    rate, other = Rate.parse(text), parse(text)
    assert (rate.amount, rate.window.total_seconds()) == (other.amount, other.get_expiry())


@pytest.mark.parametrize("text", ["often", "0", "0/minute", "1 per 0 minutes", "-1/day", "1/age"])
def test_anything_else_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="must be like"):
        Rate.parse(text)
