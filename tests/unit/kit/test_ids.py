"""Ids have the form that the schema was made for."""

import re

import pytest

from sandyard.kit.ids import (
    account_id,
    is_account_id,
    is_resource_id,
    resource_id,
    sandbox_id,
)


@pytest.mark.parametrize("prefix", ["prj", "tpl", "key", "sbx"])
def test_most_ids_have_17_letters_and_digits(prefix: str) -> None:
    made = resource_id(prefix)
    assert re.fullmatch(rf"{prefix}-[a-z0-9]{{17}}", made)
    assert is_resource_id(prefix, made)
    assert not is_resource_id("xyz", made)


@pytest.mark.parametrize("prefix", ["not", "usg", "mtr", "bil", "sgn"])
def test_those_made_in_great_numbers_have_12(prefix: str) -> None:
    assert re.fullmatch(rf"{prefix}-[a-z0-9]{{12}}", resource_id(prefix))


def test_account_ids_have_12_digits() -> None:
    assert all(is_account_id(account_id()) for _ in range(100))
    assert not is_account_id("\u0661" * 12)
    assert not is_account_id("1" * 12 + "\n")


def test_the_same_external_id_always_gives_the_same_sandbox_id() -> None:
    assert sandbox_id("ext-1") == sandbox_id("ext-1")
    assert sandbox_id("ext-1") != sandbox_id("ext-2")
    assert sandbox_id("ext-1")[14] == "5", "a UUID of version 5"
