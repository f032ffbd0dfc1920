"""The objects of a run, as the API server gets them."""

import re

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from sandyard.runtime.kubernetes.manifest import (
    PodImage,
    PodOptions,
    name_of,
    pod,
    run_id_of,
    secret,
)
from sandyard.runtime.model import Limits, RunId

LIMITS = Limits(
    cpu=0.5, memory_bytes=512 << 20, processes=64, storage_bytes=1 << 30, max_running_sec=60
)
OPTIONS = PodOptions("ours:1", PodImage("theirs:1"), gvisor_class="gvisor", priority_class="low")
RUN_ID = RunId("sandbox", "sbx_01ABC", "7")
IDS = [
    RUN_ID,
    RunId("sandbox", "sbx-01abc", "7"),
    RunId("preview", "p" * 64, "a" * 64),
    RunId("files", "x_", "y-"),
]


@pytest.mark.parametrize("run_id", IDS, ids=str)
@pytest.mark.parametrize("isolation", [None, "gvisor"])
def test_objects_fit_the_schemas(run_id: RunId, isolation: str | None) -> None:
    made = pod(
        run_id,
        LIMITS,
        OPTIONS,
        image=PodImage("theirs:1"),
        isolation=isolation,  # type: ignore[arg-type]
        egress=None,
        deadline_at=1.5,
        creation="abc",
    )
    kubernetes_validate.validate(made, "1.31", strict=True)
    kubernetes_validate.validate(secret(run_id, {"token": "eA=="}), "1.31", strict=True)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", made["metadata"]["name"])
    assert run_id_of(made) == run_id
    assert made["spec"].get("runtimeClassName") == isolation


def test_no_two_runs_share_a_name() -> None:
    assert len({name_of(run_id) for run_id in IDS}) == len(IDS)


def test_a_pod_has_limits_and_no_rights_and_no_secrets_in_its_manifest() -> None:
    made = pod(
        RUN_ID,
        LIMITS,
        OPTIONS,
        image=PodImage("theirs:1"),
        isolation=None,
        egress=None,
        deadline_at=1.5,
        creation="abc",
    )
    spec, [container] = made["spec"], made["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert container["resources"]["limits"]["cpu"] == "500m"
    assert int(container["resources"]["limits"]["memory"]) > LIMITS.memory_bytes
    values = {each["name"] for each in container["env"] if "value" in each}
    assert values == {"HOME", "SANDYARD_RUN", "SANDYARD_DEADLINE_AT"}
