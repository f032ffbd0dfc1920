"""What a provider does with the launcher, the program of every preview."""

from importlib.resources import files
from typing import Any

import orjson

from sandyard.previews.ports import PHASES, Application

STATE_BYTES = 200_000
LAUNCHER = files(__package__).joinpath("launcher.py").read_bytes()


def application_of(content: bytes) -> Application | None:
    """From the launcher's `state.json`. The programs of a project could write anything there."""
    try:
        told: Any = orjson.loads(content)
        return Application(
            phase=told["phase"] if told["phase"] in PHASES else "failed",
            kind=str(told["kind"])[:32],
            exit_code=None if told["exit_code"] is None else int(told["exit_code"]),
            last_lines=tuple(str(line)[:2000] for line in told["lines"][-40:]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
