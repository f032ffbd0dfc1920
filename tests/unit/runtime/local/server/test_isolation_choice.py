"""SANDBOX_ISOLATION=auto, and which of two isolations counts."""

from pathlib import Path

import pytest

from sandyard.runtime.errors import IsolationMissingError
from sandyard.runtime.local.server.enforcement import find_enforcement
from sandyard.runtime.local.server.isolation_check import check_isolation
from sandyard.runtime.local.server.isolation_choice import with_isolation
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.runtime.model import IsolationMode, stronger

AUTO = LocalOptions(chooses_isolation=True)


def test_without_gvisor_bubblewrap_is_chosen_and_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "runtime"
    assert with_isolation(AUTO, folder, 0).isolation == "bubblewrap"
    assert (folder / "isolation").read_text() == "bubblewrap\n"


def test_gvisor_is_chosen_where_it_runs_a_program_and_missed_when_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = with_isolation(AUTO, tmp_path, 0)
    assert (tmp_path / "isolation").read_text() == "gvisor\n"
    described = find_enforcement(chosen, tmp_path, 0).describe()
    assert described["isolation"] == "gVisor, with a kernel for each"
    monkeypatch.setenv("PATH", str(tmp_path))
    again = with_isolation(AUTO, tmp_path, 0)
    with pytest.raises(IsolationMissingError, match=r"missing.*apt-get install"):
        check_isolation(again.isolation, again)


@pytest.mark.parametrize("recorded", ["gvisor", "bubblewrap"])
def test_what_was_chosen_stays(tmp_path: Path, recorded: str) -> None:
    (tmp_path / "isolation").write_text(f"{recorded}\n")
    assert with_isolation(AUTO, tmp_path, 0).isolation == recorded


def test_what_the_operator_names_is_not_chosen_again(tmp_path: Path) -> None:
    (tmp_path / "isolation").write_text("bubblewrap\n")
    assert with_isolation(LocalOptions(isolation="gvisor"), tmp_path, 0).isolation == "gvisor"


@pytest.mark.parametrize(
    ("floor", "wanted", "chosen"),
    [
        ("bubblewrap", None, "bubblewrap"),
        ("bubblewrap", "gvisor", "gvisor"),
        ("gvisor", "bubblewrap", "gvisor"),
        ("none", "bubblewrap", "bubblewrap"),
    ],
)
def test_a_wish_never_weakens_the_operators_floor(
    floor: IsolationMode, wanted: IsolationMode | None, chosen: IsolationMode
) -> None:
    assert stronger(floor, wanted) == chosen
