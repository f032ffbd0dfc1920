"""`python -m tests.histories FOLDER` judges a recorded history again, without a new run."""

import sys
from pathlib import Path

from tests.histories.judge import judge, load


def main(folder: Path) -> int:
    history, limits = load(folder)
    problems = judge(history, limits)
    told = [*problems, f"{len(history.attempts)} calls, {len(problems)} problems"]
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
