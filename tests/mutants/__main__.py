"""`make mutants`: applies each wrong variant to a copy of the source and runs the tests that must
catch it. The tests that did are run once more without a mutant, and must pass then.

    python -m tests.mutants [NAME…]                  those, or all
    python -m tests.mutants --by tests/simulation    which ones these tests catch; fails for none
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import MUTANTS
from tests.mutants.checkout import Checkout
from tests.mutants.model import Mutant, Verdict, judge


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--by", nargs="+", default=(), metavar="TEST", help="run these tests")
    wanted = parser.parse_args()
    unknown = set(wanted.names) - {each.name for each in MUTANTS}
    if unknown:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    chosen = [each for each in MUTANTS if not wanted.names or each.name in wanted.names]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the copies are removed
    with tempfile.TemporaryDirectory(prefix="sandyard-mutants-") as folder:
        sys.exit(0 if run(chosen, wanted.by, Path(folder), wanted.workers) or wanted.by else 1)


def run(mutants: Sequence[Mutant], by: Sequence[str], folder: Path, workers: int) -> bool:
    """Whether every mutant was caught, by tests that pass without it."""
    began = time.monotonic()
    checkouts: SimpleQueue[Checkout] = SimpleQueue()
    for number in range(workers):
        checkouts.put(Checkout(folder / str(number)))
    print(f"| mutant | the bug | caught by | seconds |\n|{'---|' * 4}", flush=True)

    def catch(mutant: Mutant) -> Verdict:
        checkout = checkouts.get()
        try:
            started = time.monotonic()
            with checkout.applied(mutant):
                verdict = judge(*checkout.run(by or mutant.caught_by, "-x"))
            _tell(mutant, verdict, time.monotonic() - started)
        finally:
            checkouts.put(checkout)
        return verdict

    with ThreadPoolExecutor(workers) as pool:
        verdicts = list(pool.map(catch, mutants))
    caught = [each for each in verdicts if each.is_caught]
    print(f"\n{len(caught)} of {len(verdicts)} caught in {time.monotonic() - began:.0f} s.")
    return _pass_without_mutant(caught, checkouts.get()) and len(caught) == len(verdicts)


def _pass_without_mutant(caught: Sequence[Verdict], checkout: Checkout) -> bool:
    """A test that fails anyway has caught nothing."""
    if not caught:
        return True
    began = time.monotonic()
    exit_code, output = checkout.run(sorted({each.by for each in caught}))
    if exit_code:
        print(f"{output}\nThese tests fail without any mutant.")
        return False
    print(f"Without a mutant these tests pass ({time.monotonic() - began:.0f} s).")
    return True


def _tell(mutant: Mutant, verdict: Verdict, seconds: float) -> None:
    """A row as `docs/proof.md` has it."""
    by = verdict.by.removeprefix("tests/").replace("::", ": ", 1)
    outcome = by if verdict.is_caught else f"**survived**: {by}"
    print(f"| `{mutant.name}` | {mutant.reason} | {outcome} | {seconds:.1f} |", flush=True)


if __name__ == "__main__":
    main()
