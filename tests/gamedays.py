"""Holds every short game day on every engine that it applies to; `make gameday` runs it."""

import os
import subprocess
import sys

from sandyard.gameday.model import Engine, Scenario
from sandyard.gameday.scenarios import SCENARIOS
from tests.engines import AWS_ENVIRONMENT, dynamo_server, postgres_folder, postgres_server

SECONDS, RATE = "8", "10"


def hold(scenario: Scenario, engine: Engine, urls: dict[str, str]) -> bool:
    arguments = ["gameday", scenario.name, "--engine", engine, "--seconds", SECONDS, "--rate", RATE]
    finished = subprocess.run(
        [sys.executable, "-m", "sandyard", *arguments],
        env={**os.environ, **AWS_ENVIRONMENT, **urls},
        check=False,
    )
    return finished.returncode == 0


def main(names: list[str]) -> int:
    """The number of those that failed, by the names given or all."""
    failed = []
    with (
        postgres_folder() as folder,
        postgres_server(folder) as postgres,
        dynamo_server() as dynamo,
    ):
        urls = {"DATABASE_URL": postgres, "DDB_ENDPOINT_URL": dynamo}
        for scenario in SCENARIOS:
            for engine in scenario.engines:
                wanted = not names or scenario.name in names or f"{scenario.name}:{engine}" in names
                if wanted and not hold(scenario, engine, urls):
                    failed.append(f"{scenario.name} on {engine}")
    sys.stdout.write(f"Failed: {', '.join(failed)}\n" if failed else "All game days passed.\n")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
