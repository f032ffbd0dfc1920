"""Which provider a pool belongs to, and when that may change."""

import pytest

from sandyard.broker.provider.errors import ProviderChangeRefusedError, ProviderMismatchError
from sandyard.broker.provider.model import (
    SIMULATED,
    ProviderBinding,
    decide_first_provider,
    decide_provider_change,
    provider_name,
    require_same_provider,
)
from tests.unit.broker.rows import cause

REAL, MOVED = "https://csp.example.com", "https://csp.example.org"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (None, SIMULATED),
        ("https://CSP.example.com/", REAL),
        ("https://user:secret@csp.example.com", REAL),
        ("http://127.0.0.1:8090/eng/", "http://127.0.0.1:8090/eng"),
    ],
)
def test_a_provider_is_named_by_its_address_alone(url: str | None, name: str) -> None:
    assert provider_name(url) == name


@pytest.mark.parametrize("configured", [REAL, SIMULATED])
def test_a_new_pool_is_bound_to_any_provider(configured: str) -> None:
    first = decide_first_provider(configured, cause=cause())
    assert first.result == ProviderBinding(configured, sequence=1)
    assert first.events[0].kind == "pool.provider_set"


def test_the_remembered_provider_is_the_only_one() -> None:
    require_same_provider(ProviderBinding(REAL), REAL)
    with pytest.raises(ProviderMismatchError):
        require_same_provider(ProviderBinding(REAL), MOVED)


def test_a_real_provider_may_move() -> None:
    bound = ProviderBinding(REAL, sequence=1)
    assert decide_provider_change(bound, REAL, has_rows=True, cause=cause()) is None
    moved = decide_provider_change(bound, MOVED, has_rows=True, cause=cause())
    assert moved is not None
    assert moved.result == ProviderBinding(MOVED, sequence=2)
    assert (moved.events[0].kind, moved.events[0].data) == (
        "pool.provider_changed",
        {"provider": MOVED},
    )


@pytest.mark.parametrize(
    ("bound", "configured"),
    [(ProviderBinding(SIMULATED), REAL), (ProviderBinding(REAL), SIMULATED), (None, SIMULATED)],
)
def test_simulated_sandboxes_are_never_a_real_provider_s(
    bound: ProviderBinding | None, configured: str
) -> None:
    with pytest.raises(ProviderChangeRefusedError):
        decide_provider_change(bound, configured, has_rows=True, cause=cause())
    assert decide_provider_change(bound, configured, has_rows=False, cause=cause()) is not None
