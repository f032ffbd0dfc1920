"""How the index is shared out among replicas."""

import random
import uuid
from collections import Counter

import pytest

from sandyard.broker.pool.stores.index_scan import Share, shares


def test_one_replica_has_all_of_it() -> None:
    assert shares(1) == [Share(None, None)]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 100])
def test_every_id_is_in_one_share(count: int) -> None:
    made = random.Random(count)
    for _ in range(200):
        sandbox_id = str(uuid.UUID(int=made.getrandbits(128)))
        assert sum(sandbox_id in share for share in shares(count)) == 1


@pytest.mark.parametrize("count", [2, 3, 5, 8])
def test_shares_are_even(count: int) -> None:
    made = random.Random(count)
    ids = [str(uuid.UUID(int=made.getrandbits(128))) for _ in range(8000)]
    held = Counter(n for each in ids for n, share in enumerate(shares(count)) if each in share)
    assert max(held.values()) < 1.2 * min(held.values())


def test_ids_that_are_no_uuids_belong_to_somebody_too() -> None:
    for odd in ("0", "lab-42", "~", "SANDBOX"):
        assert sum(odd in share for share in shares(3)) == 1
