"""What a change of the files of a stopped sandbox does, at the edges."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandyard.platform.sandboxes.errors import SandboxChangedError
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.runs.end_model import StoredSnapshot
from sandyard.platform.sandboxes.runs.files_model import store_files
from sandyard.platform.sandboxes.runs.model import Accounting
from tests.unit.platform.sandboxes.examples import (
    IDS,
    NOW,
    PRICES,
    SANDBOX,
    assert_told,
    by,
    kinds,
)

HOUR = timedelta(hours=1)
KEPT = replace(
    SANDBOX,
    status=Status.STOPPED,
    attempt=2,
    latest_snapshot_id="snap-1",
    snapshot_bytes=5 * 2**30,
    snapshot_taken_at=NOW - HOUR,
    snapshot_expires_at=NOW + HOUR,
    storage_counted_until=NOW - HOUR,
    expiry_told_at=NOW,
)


def test_changed_files_replace_those_of_an_inactive_sandbox_alone() -> None:
    changed = StoredSnapshot("snap-new", 5, NOW + HOUR)
    known: dict[str, Any] = {"node": "here", "accounting": Accounting(IDS, PRICES, by())}
    replaces = KEPT.latest_snapshot_id
    transitions = store_files(KEPT, changed, replaces=replaces, **known)
    assert kinds(transitions) == ["snapshot.replaced", "usage.recorded"]
    box, usage = transitions
    assert (box.result.latest_snapshot_id, box.result.snapshot_bytes) == ("snap-new", 5)
    assert (usage.result.end_time, box.result.status) == (NOW, KEPT.status)
    assert_told(box)
    for other in (replace(KEPT, status=Status.STARTING), replace(KEPT, latest_snapshot_id="x")):
        with pytest.raises(SandboxChangedError):
            store_files(other, changed, replaces=replaces, **known)
