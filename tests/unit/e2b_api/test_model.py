"""The Platform's sandboxes as E2B tells them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sandyard.e2b_api.model import (
    SandboxView,
    clamped_timeout,
    is_gone,
    metadata_of,
    sandbox_id_of,
    state_of,
)
from sandyard.platform.sandboxes.model import Status
from tests.unit.platform.sandboxes.examples import NOW, SANDBOX

SECOND = timedelta(seconds=1)
RUNNING = replace(SANDBOX, status=Status.RUNNING, timeout_at=NOW + SECOND)


@pytest.mark.parametrize(
    ("text", "sandbox_id"),
    [
        ("sbx-1m4p7s0v3y6b9e2hk", "sbx-1m4p7s0v3y6b9e2hk"),
        ("sbx-1m4p7s0v3y6b9e2hk-sandyard", "sbx-1m4p7s0v3y6b9e2hk"),
        ("sbx-1m4p7s0v3y6b9e2hk-", None),
        ("prj-1m4p7s0v3y6b9e2hk", None),
        ("", None),
    ],
)
def test_ids_may_have_a_client_s_behind(text: str, sandbox_id: str | None) -> None:
    assert sandbox_id_of(text) == sandbox_id


@pytest.mark.parametrize(
    ("changes", "gone", "state"),
    [
        ({}, False, "running"),
        ({"timeout_at": NOW}, False, "paused"),
        ({"timeout_at": NOW, "recycle_on_timeout": True}, True, "paused"),
        ({"status": Status.STARTING, "timeout_at": None}, False, "running"),
        ({"status": Status.STOPPED, "recycle_on_timeout": True}, False, "paused"),
        ({"status": Status.TIMEOUT}, False, "paused"),
        ({"status": Status.TIMEOUT, "recycle_on_timeout": True}, True, "paused"),
        ({"status": Status.RECYCLED}, True, "paused"),
    ],
)
def test_what_there_is_and_in_which_state(
    changes: dict[str, Any], *, gone: bool, state: str
) -> None:
    sandbox = replace(RUNNING, **changes)
    assert (is_gone(sandbox, NOW), state_of(sandbox, NOW)) == (gone, state)


def test_a_pause_tells_what_it_keeps() -> None:
    paused = SandboxView(replace(RUNNING, status=Status.STOPPED), "base", 2048)
    assert (
        paused.detailed(NOW, domain="localhost", token=None, network={})["pauseMode"]
        == "filesystem"
    )
    running = SandboxView(RUNNING, "base", 2048).detailed(
        NOW, domain="localhost", token="t", network={}
    )
    assert "pauseMode" not in running
    assert running["envdAccessToken"] == "t"


def test_time_outs_have_bounds() -> None:
    assert [clamped_timeout(each) for each in (0, 15, 10**9)] == [1, 15, 7 * 86_400]


def test_metadata_is_quoted_twice() -> None:
    assert metadata_of("a%2520b=c%252Fd&e=") == {"a b": "c/d", "e": ""}
