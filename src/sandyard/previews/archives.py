"""Files of a project as a tar archive."""

import io
import tarfile
from collections.abc import Sequence
from typing import IO

from sandyard.previews.errors import ArchiveError, FilesLimitError
from sandyard.previews.files import FileLimits, ProjectFile

_MEMBER_BYTES = 8192
"""What an archive has besides each content: its names and padding, at most."""


def most_bytes(limits: FileLimits) -> int:
    """Of the archive of a project at its limits."""
    return limits.total_bytes + limits.files * _MEMBER_BYTES


def pack(files: Sequence[ProjectFile]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for file in files:
            member = tarfile.TarInfo(file.path)
            member.size = len(file.content)
            archive.addfile(member, io.BytesIO(file.content))
    return packed.getvalue()


def unpack(packed: IO[bytes], limits: FileLimits) -> dict[str, bytes]:
    """The contents by path; folders are left out. Raises ArchiveError and FilesLimitError."""
    found: dict[str, bytes] = {}
    size = 0
    try:
        with tarfile.open(fileobj=packed, mode="r:") as archive:
            for member in archive:
                if member.isdir():
                    continue
                if not member.isreg() or member.issparse():
                    raise ArchiveError(f"{member.name[:100]!r} is neither a file nor a folder.")
                size += member.size
                if size > limits.total_bytes or len(found) >= limits.files:
                    raise FilesLimitError(
                        f"A project can have {limits.files} files and {limits.total_bytes} bytes."
                    )
                content = archive.extractfile(member)
                found[member.name.removeprefix("./")] = content.read() if content else b""
    except (tarfile.TarError, UnicodeError, ValueError, OverflowError) as error:
        raise ArchiveError from error
    return found
