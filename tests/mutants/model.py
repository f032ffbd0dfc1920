"""A wrong variant of the source, and what a run of its tests says about it."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = Path("src/sandyard")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: `old` in `file` becomes `new`."""

    name: str
    reason: str
    """Which bug it is."""
    file: str
    """Below src/sandyard."""
    old: str
    """Is there exactly once."""
    new: str
    caught_by: tuple[str, ...]
    """The tests that must find it."""

    @property
    def path(self) -> Path:
        return SOURCE / self.file

    def applied(self, source: str) -> str:
        """The wrong source. Raises ValueError unless `old` is there exactly once."""
        if (count := source.count(self.old)) != 1:
            raise ValueError(f"{self.name}: its text is {count} times in {self.file}")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Verdict:
    is_caught: bool
    by: str
    """The test that failed first, or why none did."""


_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)
_TIMEOUT = "Failed: Timeout"
_PASSED, _TESTS_FAILED = 0, 1


def judge(exit_code: int, output: str) -> Verdict:
    """Only a test that failed has caught a mutant: one that could not begin shows that the mutant
    can't be imported, or that the machine lacks something, and one that took too long, that the
    machine is busy."""
    failed = _FAILED.search(output)
    if exit_code == _TESTS_FAILED and failed is not None and _TIMEOUT not in output:
        return Verdict(is_caught=True, by=failed[1])
    if exit_code == _PASSED:
        return Verdict(is_caught=False, by="all its tests passed")
    return Verdict(is_caught=False, by=f"its tests did not end (pytest's exit code {exit_code})")
