"""Every mutant still fits: its text is in the source once, and the tests that catch it exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.checkout import Checkout
from tests.mutants.model import ROOT, Mutant, judge

LEAST = 25


def named(mutant: Mutant) -> str:
    return mutant.name


def test_there_are_enough_and_each_has_a_name_of_its_own() -> None:
    assert len({each.name for each in MUTANTS}) == len(MUTANTS) >= LEAST


@pytest.mark.parametrize("mutant", MUTANTS, ids=named)
def test_a_mutant_is_another_program_than_the_source(mutant: Mutant) -> None:
    source = (ROOT / mutant.path).read_text()
    assert ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", MUTANTS, ids=named)
def test_the_tests_that_catch_a_mutant_exist(mutant: Mutant) -> None:
    for test in mutant.caught_by:
        file, *names = re.sub(r"\[.*", "", test).split("::")
        assert (ROOT / file).exists(), test
        for name in names:
            assert re.search(rf"(def|class) {name}\b", (ROOT / file).read_text()), test


def test_the_table_in_the_docs_has_every_mutant() -> None:
    rows = (ROOT / "docs/proof.md").read_text().splitlines()
    assert [row for row in rows if row.startswith("| `")] == [
        next(
            (row for row in rows if row.startswith(f"| `{each.name}` | {each.reason} |")), each.name
        )
        for each in MUTANTS
    ]


@pytest.mark.parametrize(
    ("exit_code", "output", "is_caught"),
    [
        (1, "FAILED tests/a.py::test_b - AssertionError", True),
        (1, "ERROR tests/a.py::test_b - a fixture failed", False),
        (0, "1 passed", False),
        (2, "ERROR tests/a.py - SyntaxError", False),
        (4, "ERROR: not found: tests/a.py::test_b", False),
        (-1, "....", False),
        (1, "Failed: Timeout (>120.0s)\nFAILED tests/a.py::test_b", False),
    ],
)
def test_only_a_test_that_fails_catches_a_mutant(
    exit_code: int, output: str, is_caught: bool
) -> None:
    assert judge(exit_code, output).is_caught is is_caught


def test_a_mutant_is_caught_in_a_copy_of_the_source(tmp_path: Path) -> None:
    mutant = next(each for each in MUTANTS if each.name == "a-lease-lives-at-its-end")
    checkout, source = Checkout(tmp_path / "copy"), (ROOT / mutant.path).read_text()
    with checkout.applied(mutant):
        assert (ROOT / mutant.path).read_text() == source
        verdict = judge(*checkout.run(mutant.caught_by, "-x"))
    assert verdict.is_caught, verdict.by
