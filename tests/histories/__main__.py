"""`python -m tests.histories FOLDER` judges what a run has left again, without a new run."""

import sys
from pathlib import Path

from tests.histories.evidence import load


def main(folder: Path) -> int:
    evidence = load(folder)
    problems = evidence.problems()
    told = [*problems, f"{len(evidence.calls)} calls, {len(problems)} problems"]
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
