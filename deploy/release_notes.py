"""Prints the section of CHANGELOG.md for a version: `python3 deploy/release_notes.py 0.2.0`."""

import re
import sys
from pathlib import Path


def notes(changelog: str, version: str) -> str:
    """Raises KeyError if the version has no section."""
    sections = re.split(r"^## (\S+).*\n", changelog, flags=re.MULTILINE)
    found = dict(zip(sections[1::2], sections[2::2], strict=True))
    return found[version].strip() + "\n"


if __name__ == "__main__":
    text = (Path(__file__).parents[1] / "CHANGELOG.md").read_text()
    try:
        sys.stdout.write(notes(text, sys.argv[1]))
    except KeyError:
        sys.exit(f"CHANGELOG.md has no section {sys.argv[1]}.")
