"""Holds every short game day on every engine that it applies to; `make gameday` runs it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from sandyard.tools.gameday.model import SCENARIOS, Engine, Scenario
from tests.support.kubernetes import gamedays
from tests.support.storage.engines import (
    AWS_ENVIRONMENT,
    dynamo_server,
    postgres_folder,
    postgres_server,
)

SECONDS, RATE = "8", "10"


def hold(scenario: Scenario, engine: Engine, urls: dict[str, str]) -> bool:
    arguments = ["gameday", scenario.name, "--engine", engine, "--seconds", SECONDS, "--rate", RATE]
    finished = subprocess.run(
        [sys.executable, "-m", "sandyard", *arguments],
        env={**os.environ, **AWS_ENVIRONMENT, **urls},
        check=False,
    )
    return finished.returncode == 0


def chosen(names: Sequence[str]) -> Iterator[tuple[Scenario, Engine]]:
    """By the names given, such as `task-killed` or `task-killed:sqlite`, or all."""
    for scenario in SCENARIOS:
        for engine in scenario.engines:
            if not names or {scenario.name, f"{scenario.name}:{engine}"} & {*names}:
                yield scenario, engine


def summary(scenario: Scenario, engine: Engine, *, has_passed: bool, seconds: float) -> str:
    """With how busy the machine was: an alert that is not seen on a busy one may be no fault."""
    told = "passed" if has_passed else "FAILED"
    load = os.getloadavg()[0]
    return f"{scenario.name:18} {engine:11} {told} in {seconds:.0f} s, load average {load:.1f}"


def main(names: list[str]) -> int:
    """The number of those that failed."""
    lines, failed = [], 0
    with (
        postgres_folder() as folder,
        postgres_server(folder) as postgres,
        dynamo_server() as dynamo,
    ):
        urls = {"DATABASE_URL": postgres, "DDB_ENDPOINT_URL": dynamo}
        for scenario, engine in chosen(names):
            started = time.monotonic()
            has_passed = hold(scenario, engine, urls)
            seconds = time.monotonic() - started
            failed += not has_passed
            lines.append(summary(scenario, engine, has_passed=has_passed, seconds=seconds))
        for line, has_passed in gamedays.hold_all(names, postgres):
            failed += not has_passed
            lines.append(f"{line}, load average {os.getloadavg()[0]:.1f}")
    lines.append(f"{len(lines) - failed} of {len(lines)} game days passed.")
    sys.stdout.write("\n".join(["", *lines, ""]))
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
