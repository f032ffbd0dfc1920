"""What a provider does with the launcher, the program of every preview."""

import io
import zipfile
from importlib.resources import files
from typing import Any

import orjson

from sandyard.previews import launcher
from sandyard.previews.ports import PHASES, Application

STATE_BYTES = 200_000


def _launcher() -> bytes:
    """An archive that `python3 -I` runs; its modules have the same names inside."""
    packed = io.BytesIO()
    folders = launcher.__name__.split(".")
    with zipfile.ZipFile(packed, "w") as archive:
        for depth in range(1, len(folders)):
            archive.writestr("/".join([*folders[:depth], "__init__.py"]), b"")
        for module in files(launcher).iterdir():
            if module.name.endswith(".py"):
                folder = [] if module.name == "__main__.py" else folders
                archive.writestr("/".join([*folder, module.name]), module.read_bytes())
    return packed.getvalue()


LAUNCHER = _launcher()


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
