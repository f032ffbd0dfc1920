"""Updates files of the workspace."""

import json
import os
import shutil
from contextlib import suppress

from .errors import RefusedError
from .paths import WORKSPACE


def apply(incoming: str) -> None:
    """Delete and write as the uploaded folder says: `paths.json` has the paths, and each written
    file's content is under its number."""
    try:
        with open(os.path.join(incoming, "paths.json"), encoding="utf-8") as file:
            paths = json.load(file)
        for path in (*paths["deleted"], *paths["written"]):
            _require_safe(path)
        for path in paths["deleted"]:
            _delete(path)
        for number, path in enumerate(paths["written"]):
            _write(os.path.join(incoming, str(number)), path)
    finally:
        shutil.rmtree(incoming)


def _require_safe(path: str) -> None:
    """Raises if a folder on the path is a link."""
    folder = os.path.dirname(path)
    expected = os.path.normpath(os.path.join(os.path.realpath(WORKSPACE), folder))
    if os.path.realpath(os.path.join(WORKSPACE, folder)) != expected:
        raise RefusedError("UNSAFE_PATH", path)


def _delete(path: str) -> None:
    file = os.path.join(WORKSPACE, path)
    with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
        os.unlink(file)
    folder = os.path.dirname(path)
    with suppress(OSError):  # something else is in it
        while folder:
            os.rmdir(os.path.join(WORKSPACE, folder))
            folder = os.path.dirname(folder)


def _write(content: str, path: str) -> None:
    file = os.path.join(WORKSPACE, path)
    try:
        os.makedirs(os.path.dirname(file), exist_ok=True)
        os.replace(content, file)
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise RefusedError("UNSAFE_PATH", path) from error
