"""The guest: our code that is sent into a machine."""

from functools import cache
from hashlib import sha256
from importlib.resources import files

from sandyard.runtime import guest

STATE = ".sandyard"
"""In the home folder of the machine's user, beside the workspace."""
_NAME = "guest"


@cache
def guest_files() -> dict[str, bytes]:
    """By their paths in the machine, relative to the home folder."""
    sources = {
        each.name: each.read_bytes() for each in files(guest).iterdir() if each.name.endswith(".py")
    }
    return {f"{_folder(sources)}/{_NAME}/{name}": sources[name] for name in sorted(sources)}


def guest_folder() -> str:
    """Where `python3 -m guest` finds it; servers of other versions use other folders."""
    return next(iter(guest_files())).rpartition(f"/{_NAME}/")[0]


def _folder(sources: dict[str, bytes]) -> str:
    content = b"".join(sources[name] for name in sorted(sources))
    return f"{STATE}/{sha256(content).hexdigest()[:16]}"
