"""What the state of a Pod means for its machine."""

import json
from typing import Any

import pytest

from sandyard.runtime.kubernetes.model import (
    end_of,
    is_up,
    start_trouble,
    state_of,
    unscheduled_reason,
)

NOW = 1_800_000_000.0
FINISHED = "2027-01-15T07:00:00Z"
FINISHED_AT = 1_799_996_400.0


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "box"}, "status": status}


def terminated(**state: Any) -> list[dict[str, Any]]:
    return [{"name": "sandbox", "state": {"terminated": {"finishedAt": FINISHED, **state}}}]


def test_a_pod_whose_node_is_lost_may_still_run() -> None:
    lost = pod(
        phase="Running", reason="NodeLost", conditions=[{"type": "Ready", "status": "False"}]
    )
    assert end_of(lost, now=NOW) is None
    assert end_of({**lost, "metadata": {"deletionTimestamp": FINISHED}}, now=NOW) is None


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"containerStatuses": terminated(reason="OOMKilled", exitCode=137)}, "out_of_memory"),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, "timeout"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "terminated"),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "Usage of EmptyDir volume exceeds"},
            "out_of_storage",
        ),
        ({"containerStatuses": terminated(reason="Error", exitCode=137)}, "killed"),
        ({"phase": "Failed", "reason": "NodeShutdown"}, "killed"),
    ],
)
def test_an_end_has_a_reason(status: dict[str, Any], reason: str) -> None:
    end = end_of(pod(**{"phase": "Failed", **status}), now=NOW)
    assert end is not None
    assert (end.reason, bool(end.message)) == (reason, True)


def test_the_end_that_the_agent_recorded_is_the_true_one() -> None:
    message = json.dumps({"reason": "timeout", "ended_at": FINISHED_AT - 30})
    end = end_of(pod(containerStatuses=terminated(exitCode=0, message=message)), now=NOW)
    assert end is not None
    assert (end.reason, end.at) == ("timeout", FINISHED_AT - 30)


@pytest.mark.parametrize(
    "message", ["", "null", "[]", '{"reason": 1}', '{"reason": "x", "ended_at": 1}']
)
def test_what_programs_inside_wrote_is_no_reason(message: str) -> None:
    end = end_of(pod(containerStatuses=terminated(exitCode=1, message=message)), now=NOW)
    assert end is not None
    assert (end.reason, end.at) == ("killed", FINISHED_AT)


def test_no_recorded_end_is_later_than_that_of_the_container() -> None:
    message = json.dumps({"reason": "timeout", "ended_at": NOW * 2})
    end = end_of(pod(containerStatuses=terminated(exitCode=0, message=message)), now=NOW)
    assert end is not None
    assert end.at == FINISHED_AT


def test_a_start_that_needs_help_says_which() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    status = [{"name": "sandbox", "image": "nowhere/nothing", "state": {"waiting": waiting}}]
    assert "nowhere/nothing" in (start_trouble(pod(containerStatuses=status)) or "")
    assert start_trouble(pod(phase="Pending")) is None
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}
    assert "0/3 nodes" in (unscheduled_reason(pod(conditions=[condition])) or "")


def test_it_is_up_with_an_address_and_a_running_container() -> None:
    running = [{"name": "sandbox", "state": {"running": {}}}]
    assert is_up(pod(podIP="10.0.0.1", containerStatuses=running))
    assert not is_up(pod(podIP="10.0.0.1"))
    assert not is_up(pod(containerStatuses=running))


def test_a_pod_is_in_a_state_since_a_moment() -> None:
    running = [{"name": "sandbox", "state": {"running": {}}}]
    up = {"podIP": "10.0.0.1", "containerStatuses": running}
    since = {"lastTransitionTime": FINISHED}
    unready = [{"type": "Ready", "status": "False", **since}]
    cut_off = {**up, "containerStatuses": [{**running[0], "ready": True}], "conditions": unready}
    assert state_of(pod(), now=NOW) == ("pending", NOW)
    assert state_of(pod(**up), now=NOW) == ("running", NOW)
    assert state_of(pod(**up, conditions=unready), now=NOW) == ("running", NOW), "it has news"
    assert state_of(pod(**cut_off), now=NOW) == ("unreachable", FINISHED_AT)
    deleted = {**pod(**up), "metadata": {"deletionTimestamp": FINISHED}}
    assert state_of(deleted, now=NOW) == ("ending", FINISHED_AT)
    assert state_of(pod(containerStatuses=terminated(exitCode=0)), now=NOW) is None
