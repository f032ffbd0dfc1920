"""The list of event kinds is that of the documentation and of the code."""

import re
from pathlib import Path

import pytest

from sandyard.kit.changes.event_kinds import (
    EVENT_KINDS,
    UnknownEventKindError,
    matches,
    require_known_kinds,
)

ROOT = Path(__file__).parents[4]
NO_EVENTS = {"html", "csv", "json", "py", "svg", "md"}
"""What follows the point in names of files."""


def test_the_documentation_lists_every_kind() -> None:
    page = (ROOT / "docs" / "events.md").read_text()
    tables = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    listed = {kind for cell in tables for kind in re.findall(r"`([a-z_]+\.[a-z_]+)`", cell)}
    assert listed == EVENT_KINDS


def test_every_kind_in_the_code_is_known() -> None:
    nouns = {kind.partition(".")[0] for kind in EVENT_KINDS}
    source = ROOT / "src" / "sandyard"
    found = {
        f"{noun}.{verb}"
        for file in source.rglob("*.py")
        for noun, verb in re.findall(r'"([a-z_]+)\.([a-z_]+)"', file.read_text())
        if noun in nouns and verb not in NO_EVENTS
    }
    assert found <= EVENT_KINDS


@pytest.mark.parametrize("wanted", ["lease.created", "lease.*", "*"])
def test_a_kind_or_the_beginning_of_some_is_known(wanted: str) -> None:
    require_known_kinds([wanted])
    assert matches(wanted, "lease.created")
    assert not matches(wanted, "leases.created") or wanted == "*"


@pytest.mark.parametrize(
    ("wanted", "nearest"),
    [
        ("lease.create", "lease.created"),
        ("leases.*", "lease.*"),
        ("sandbox.quarantine", "sandbox.quarantined"),
        ("weather", None),
    ],
)
def test_an_unknown_kind_is_refused_with_the_nearest(wanted: str, nearest: str | None) -> None:
    with pytest.raises(UnknownEventKindError) as refused:
        require_known_kinds(["lease.created", wanted])
    assert refused.value.details == {"kind": wanted, "nearest": nearest}
    assert (nearest or wanted) in refused.value.message
