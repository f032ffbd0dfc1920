"""`python -m tests.histories FOLDER` judges a recorded history again, without a new run."""

import sys
from pathlib import Path

from tests.histories.judge import judge, load
from tests.histories.life_calls import LifeHistory
from tests.histories.lives import judge_previews, judge_runs

_OF_LIVES = {"platform": judge_runs, "previews": judge_previews}


def main(folder: Path) -> int:
    problems, calls = list[str](), 0
    if (folder / "history.jsonl").exists():
        history, limits = load(folder)
        problems, calls = judge(history, limits), len(history.attempts)
    for part, judged in _OF_LIVES.items():
        if (file := folder / f"{part}.jsonl").exists():
            lives = LifeHistory.load(file)
            problems += judged(lives)
            calls += len(lives.calls)
    told = [*problems, f"{calls} calls, {len(problems)} problems"]
    sys.stdout.write("\n".join(told) + "\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
