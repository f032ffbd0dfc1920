"""The SHA-256 of a file's content, which is the name of its object."""

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def copy(source: Path, to: Path) -> str:
    """Make a durable copy; returns the SHA-256 of what was written, read while it is synced."""
    with ThreadPoolExecutor(1) as hashing:
        shutil.copyfile(source, to)
        hashed = hashing.submit(sha256_of, to)
        with to.open("rb+") as file:
            os.fsync(file.fileno())
        return hashed.result()
