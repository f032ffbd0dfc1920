"""What E2B measured, added up; and a missing SDK."""

import sys
from datetime import UTC, datetime

import pytest
from e2b import SandboxMetrics

from sandyard.runtime.e2b.control import E2bControl
from sandyard.runtime.e2b.errors import E2bMissingError
from sandyard.runtime.e2b.machines import cpu_seconds


def measured(at: float, percent: float) -> SandboxMetrics:
    return SandboxMetrics(
        cpu_count=4,
        cpu_used_pct=percent,
        disk_total=0,
        disk_used=0,
        mem_total=0,
        mem_used=0,
        mem_cache=0,
        timestamp=datetime.fromtimestamp(at, UTC),
    )


def test_the_shares_of_the_processors_add_up_to_seconds() -> None:
    assert cpu_seconds([measured(105, 50), measured(110, 100)], since_at=100) == 10 + 20
    assert cpu_seconds([measured(95, 50), measured(110, 10)], since_at=100) == 4
    assert cpu_seconds([], since_at=100) == 0


def test_without_the_sdk_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "e2b", None)
    with pytest.raises(E2bMissingError, match=r"sandyard\[e2b\]"):
        E2bControl("key")
