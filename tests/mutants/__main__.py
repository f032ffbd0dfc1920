"""`make mutants`: applies each wrong variant to a copy of the source and runs the tests that must
catch it.

    python -m tests.mutants [NAME…]                  those, or all
    python -m tests.mutants --by tests/simulation    which ones these tests catch; fails for none
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import MUTANTS
from tests.mutants.model import ROOT, Mutant, Verdict, judge

WORKERS = 2
COPIED = ("src", "tests")
"""What a worker has for itself; all else is a link to the checkout."""
TEST_SEC, SUITE_SEC, ALL_SEC = 60, 180, 900
_mtimes = count(int(time.time()))
"""Python compiles a file again if its time is another, in whole seconds."""


class Checkout:
    """A copy of the source and the tests, in which one mutant at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for entry in ROOT.iterdir():
            if entry.name in COPIED:
                shutil.copytree(entry, folder / entry.name, symlinks=True)
            elif entry.name != ".git":
                (folder / entry.name).symlink_to(entry)
        path = os.pathsep.join((str(folder / "src"), str(folder)))
        self._environment = {**os.environ, "PYTHONPATH": path}
        self._require_own_source()

    @contextmanager
    def applied(self, mutant: Mutant) -> Iterator[None]:
        file = self._folder / mutant.path
        right = file.read_text()
        try:
            _write(file, mutant.applied(right))
            yield
        finally:
            _write(file, right)

    def run(self, tests: Sequence[str], *, timeout_sec: float = SUITE_SEC) -> tuple[int, str]:
        """The exit code of pytest and its output."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-rf", "--tb=line"]
        options = ["-p", "no:cacheprovider", f"--timeout={TEST_SEC}"]
        try:
            done = subprocess.run(
                [*command, *options, *tests],
                cwd=self._folder,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=timeout_sec,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return -1, f"not finished after {timeout_sec:g} s"
        return done.returncode, done.stdout + done.stderr

    def _require_own_source(self) -> None:
        """The installed package is that of the checkout: it must not be the one that is tested."""
        show = [sys.executable, "-c", "import sandyard; print(sandyard.__file__)"]
        found = subprocess.check_output(
            show, cwd=self._folder, env=self._environment, text=True
        ).strip()
        if not Path(found).is_relative_to(self._folder):
            raise SystemExit(f"the tests would import {found}, not the copy in {self._folder}")


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    moment = next(_mtimes)
    os.utime(file, (moment, moment))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--by", nargs="+", default=(), metavar="TEST", help="run these tests")
    wanted = parser.parse_args()
    unknown = set(wanted.names) - {each.name for each in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [each for each in MUTANTS if not wanted.names or each.name in wanted.names]
    with tempfile.TemporaryDirectory(prefix="sandyard-mutants-") as folder:
        sys.exit(0 if run(chosen, wanted.by, Path(folder)) or wanted.by else 1)


def run(mutants: Sequence[Mutant], by: Sequence[str], folder: Path) -> bool:
    """Whether every mutant was caught."""
    began = time.monotonic()
    checkouts: SimpleQueue[Checkout] = SimpleQueue()
    for number in range(WORKERS):
        own = folder / str(number)
        own.mkdir()
        checkouts.put(Checkout(own))
    suites = sorted({tuple(by or each.caught_by) for each in mutants})
    _require_green(suites, checkouts)
    print(f"The tests pass without a mutant ({time.monotonic() - began:.0f} s).\n")
    print(f"| mutant | caught by | seconds |\n|{'---|' * 3}")

    def catch(mutant: Mutant) -> bool:
        checkout = checkouts.get()
        try:
            started = time.monotonic()
            with checkout.applied(mutant):
                verdict = judge(*checkout.run(by or mutant.caught_by))
            _tell(mutant, verdict, time.monotonic() - started)
        finally:
            checkouts.put(checkout)
        return verdict.is_caught

    with ThreadPoolExecutor(WORKERS) as pool:
        caught = list(pool.map(catch, mutants))
    print(f"\n{sum(caught)} of {len(caught)} caught in {time.monotonic() - began:.0f} s.")
    return all(caught)


def _require_green(suites: Sequence[tuple[str, ...]], checkouts: SimpleQueue[Checkout]) -> None:
    """Without a mutant every test passes: otherwise to fail would show nothing."""
    tests = sorted({test for suite in suites for test in suite})

    def passes(share: Sequence[str]) -> None:
        checkout = checkouts.get()
        exit_code, output = checkout.run(share, timeout_sec=ALL_SEC) if share else (0, "")
        checkouts.put(checkout)
        if exit_code:
            print(output, file=sys.stderr)
            raise SystemExit("The tests fail without any mutant.")

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(passes, _halves(tests)))


def _halves(tests: Sequence[str]) -> list[Sequence[str]]:
    """By file, so that each file's fixtures are made once."""
    files = sorted({test.partition("::")[0] for test in tests})
    return [
        [test for test in tests if test.partition("::")[0] in files[number::WORKERS]]
        for number in range(WORKERS)
    ]


def _tell(mutant: Mutant, verdict: Verdict, seconds: float) -> None:
    outcome = verdict.by if verdict.is_caught else f"**survived**: {verdict.by}"
    print(f"| {mutant.name} | {outcome} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
