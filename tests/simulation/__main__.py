"""`python -m tests.simulation` simulates operations on new seeds, and tells what became of them.

    --operations N     in all, a thousand for each seed (1,000,000)
    --seed S           the first; drawn and printed if it is not given
    --parts PART…      broker, platform, previews (all that the engine can store)
    --engine ENGINE    sqlite, postgresql or dynamodb, the real one (stores in memory)
    --processes N      (2)
    --folder FOLDER    for the histories of seeds that fail (a new one below the temporary folder)

Broken off, by SIGTERM too, it tells what has become of the seeds so far.

A seed that failed is run again by `--parts PART --seed S --operations 1000`, and exactly repeated:
but for a real engine, whose answers come as they come.
"""

import os
import sys

from tests.simulation.long_run import main

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # a seed repeats its run only with the same one
        os.execve(  # noqa: S606 - itself
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            os.environ | {"PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
