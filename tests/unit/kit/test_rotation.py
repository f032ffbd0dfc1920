"""Which values of a secret hold while it is rotated, and which one is used."""

from sandyard.kit.rotation import NEVER_DROPPED, AnyOf, Rotation, RotationPolicy, Secret

POLICY = RotationPolicy(distribution_sec=10, overlap_sec=100)
OLD = Rotation(("old",), since=-NEVER_DROPPED)


def in_force(rotation: Rotation, now: float) -> tuple[str, ...]:
    return rotation.in_force(now=now, policy=POLICY)


def test_a_new_value_is_accepted_at_once_and_used_when_every_replica_knows_it() -> None:
    rotation = OLD.rotate(("new",), now=1000, policy=POLICY)
    assert in_force(rotation, 1000) == ("old", "new")
    assert in_force(rotation, 1009.9) == ("old", "new")
    assert in_force(rotation, 1010) == ("new", "old")


def test_the_old_value_holds_until_the_overlap_ends() -> None:
    rotation = OLD.rotate(("new",), now=1000, policy=POLICY)
    assert "old" in in_force(rotation, 1099.9)
    assert in_force(rotation, 1100) == ("new",)


def test_the_same_values_are_no_rotation() -> None:
    assert OLD.rotate(("old",), now=1000, policy=POLICY) is OLD


def test_a_second_rotation_does_not_prolong_the_first_value() -> None:
    rotation = OLD.rotate(("new",), now=1000, policy=POLICY)
    rotation = rotation.rotate(("newest",), now=1050, policy=POLICY)
    assert in_force(rotation, 1099) == ("newest", "new", "old")
    assert in_force(rotation, 1100) == ("newest", "new")
    assert in_force(rotation, 1150) == ("newest",)


def test_a_value_that_is_kept_beside_the_new_one_outlasts_the_overlap() -> None:
    rotation = OLD.rotate(("new", "old"), now=1000, policy=POLICY)
    assert in_force(rotation, 1000) == ("old", "new")
    assert in_force(rotation, 5000) == ("new", "old")


def test_a_value_that_came_back_holds_as_any_other() -> None:
    rotation = OLD.rotate(("new",), now=1000, policy=POLICY)
    rotation = rotation.rotate(("old",), now=1050, policy=POLICY)
    assert in_force(rotation, 9000) == ("old",)


def test_a_key_that_data_rests_on_is_never_dropped() -> None:
    lasting = RotationPolicy(distribution_sec=10, overlap_sec=NEVER_DROPPED)
    rotation = OLD.rotate(("new",), now=1000, policy=lasting)
    assert rotation.in_force(now=1e12, policy=lasting) == ("new", "old")


def test_a_secret_is_a_sequence_of_what_holds_now_and_shows_nothing() -> None:
    secret = Secret(["old"])
    both = AnyOf(secret, Secret(["another"]))
    secret.swap(["new", "old"])
    assert list(secret) == ["new", "old"]
    assert list(both) == ["new", "old", "another"]
    assert secret.accepts(b"old")
    assert not secret.accepts(b"another")
    assert "old" not in repr(secret)
