"""The folders of the source are rooms: few modules, short files, and tests beside their models."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "sandyard"
MOST_MODULES = 20
MOST_LINES = 400
WITHOUT_UNIT_TESTS: frozenset[str] = frozenset()
"""Rooms with a model that have no folder below tests/unit; may only become fewer."""


def folders(*roots: Path) -> list[Path]:
    """Those that have modules."""
    return sorted({module.parent for root in roots for module in root.rglob("*.py")})


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("folder", folders(SOURCE, ROOT / "tests" / "support"), ids=named)
def test_a_folder_has_at_most_twenty_modules(folder: Path) -> None:
    modules = [each for each in folder.glob("*.py") if each.name != "__init__.py"]
    assert len(modules) <= MOST_MODULES


def test_no_file_is_longer_than_four_hundred_lines() -> None:
    lines = {named(file): len(file.read_text().splitlines()) for file in SOURCE.rglob("*.py")}
    assert not {file: count for file, count in lines.items() if count > MOST_LINES}


def test_every_room_with_a_model_has_unit_tests() -> None:
    rooms = {each.parent.relative_to(SOURCE) for each in SOURCE.rglob("*model.py")}
    missing = {str(room) for room in rooms if not (ROOT / "tests" / "unit" / room).is_dir()}
    assert missing == WITHOUT_UNIT_TESTS, "shorten the list if there are fewer"
