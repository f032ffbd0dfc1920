"""A run on many new seeds, in some processes, and the table of what became of them."""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.failures import describe
from tests.simulation.parts import PARTS
from tests.simulation.schedule import Schedule
from tests.simulation.servers import ENGINES, Servers, servers

PER_SEED = 1000
_SEEDS_PER_PROCESS = 100
"""Then another takes over, so that no memory is lost."""


@dataclass(frozen=True, slots=True)
class Told:
    """What became of one seed."""

    part: str
    seed: int
    operations: int
    cpu_sec: float
    kills: int
    faults: int
    failure: str


@dataclass(slots=True)
class Sums:
    """Of one part."""

    seeds: int = 0
    operations: int = 0
    cpu_sec: float = 0.0
    kills: int = 0
    faults: int = 0
    failed: list[int] = field(default_factory=list)

    def add(self, told: Told) -> None:
        self.seeds += 1
        self.operations += told.operations
        self.cpu_sec += told.cpu_sec
        self.kills += told.kills
        self.faults += told.faults
        if told.failure:
            self.failed.append(told.seed)

    def __str__(self) -> str:
        counted = f"{self.seeds:,} | {self.operations:,} | {self.faults:,} | {self.kills:,}"
        return f"{counted} | {self.cpu_sec:,.0f} | {len(self.failed)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS))
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    wanted = parser.parse_args()
    folder = wanted.folder or Path(tempfile.mkdtemp(prefix="sandyard-simulation-"))
    parts = wanted.parts or parts_on(wanted.engine)
    runs = list(seeds(parts, wanted.seed, wanted.operations))
    _say(f"--seed {wanted.seed}: {len(runs):,} seeds; histories of those that fail: {folder}")
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with servers(wanted.engine) if wanted.engine else nullcontext() as real:
        sums = run_all(runs, wanted.processes, folder, real)
    _say(f"\n| part | seeds | operations | faults | kills | CPU s | failed |\n|{'---|' * 7}")
    for part, of_part in sorted(sums.items()):
        _say(f"| {part} | {of_part} |")
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    _say(f"\n{time.monotonic() - began:,.0f} s; load averages {load}")
    return 1 if any(each.failed for each in sums.values()) else 0


def parts_on(engine: str | None) -> Sequence[str]:
    """All that it can store."""
    return ["broker"] if engine == "dynamodb" else sorted(PARTS)


def seeds(parts: Sequence[str], first: int, operations: int) -> Iterator[tuple[str, int]]:
    """Each part has its share of them; those of all parts take turns."""
    whole = sum(PARTS[part].share for part in parts)
    counts = {part: int(operations * PARTS[part].share / whole) // PER_SEED for part in parts}
    places = [(n / counts[part], part, first + n) for part in parts for n in range(counts[part])]
    return ((part, seed) for _, part, seed in sorted(places))


def run_all(
    runs: Sequence[tuple[str, int]], processes: int, folder: Path, real: Servers | None
) -> dict[str, Sums]:
    """Broken off, by a signal too, it returns what has become of the seeds so far."""
    sums: dict[str, Sums] = defaultdict(Sums)
    tenth = max(1, len(runs) // 10)
    told_of = partial(run, folder=folder, real=real)
    with (
        suppress(KeyboardInterrupt),
        get_context("spawn").Pool(processes, maxtasksperchild=_SEEDS_PER_PROCESS) as pool,
    ):
        for done, told in enumerate(pool.imap_unordered(told_of, runs), 1):
            sums[told.part].add(told)
            if told.failure:
                _say(f"{told.part}: {told.failure}")
            if done % tenth == 0:
                operations = sum(each.operations for each in sums.values())
                _say(f"{done:,} seeds, {operations:,} operations")
    return sums


def run(part_and_seed: tuple[str, int], folder: Path, real: Servers | None) -> Told:
    part, seed = part_and_seed
    began = time.process_time()
    again = partial(real.simulate, part) if real else PARTS[part].simulate
    outcome = again(Schedule(seed, PER_SEED))
    cpu_sec = time.process_time() - began
    failure = describe(outcome, again, folder / f"{part}-{seed}") if outcome.problems else ""
    faults = Counter(outcome.faults).total()
    return Told(part, seed, outcome.operations, cpu_sec, outcome.kills, faults, failure)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
