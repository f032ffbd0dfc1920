"""Reads how a program is run from its Procfile."""

from sandyard.runtime.errors import FileMissingError, FileRefusedError
from sandyard.runtime.sessions.ports import Session

_MOST_BYTES = 65536


async def read_procfile(session: Session, folder: str | None) -> str | None:
    """The Procfile at the top, if it is a regular file."""
    path = f"{folder}/Procfile" if folder else "Procfile"
    try:
        if (await session.files.stat(path)).kind != "file":
            return None
        pieces = [piece async for piece in session.files.read(path, limit=_MOST_BYTES)]
    except (FileMissingError, FileRefusedError):
        return None
    return b"".join(pieces).decode(errors="replace")
