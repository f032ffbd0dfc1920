"""What `make test-kubernetes` does, with the stand-in as the cluster of somebody else."""

import asyncio
from pathlib import Path

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from sandyard.runtime.kubernetes.manifest import name_of
from sandyard.runtime.model import Ended, MachineSpec
from tests.support.commands.in_cluster import NAMESPACE, manifests
from tests.support.kubernetes.cluster import URL, RealCluster
from tests.support.kubernetes.serving import serving_cluster
from tests.support.runtime.programs import LIMITS, new_run_id


async def test_a_cluster_is_entered_by_its_address_alone_and_left_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_cluster(tmp_path / "cluster", nodes=1) as serving:
        for name, value in serving.settings.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv(URL, serving.settings["KUBERNETES_URL"])
        found = RealCluster(tmp_path)
        await found.start()
        machines, _ = found.machines()
        run_id = new_run_id()
        await machines.create(run_id, MachineSpec(LIMITS, 600))
        async with asyncio.timeout(20):
            while found.count_running() != 1:
                await asyncio.sleep(0.02)
            await found.kill(name_of(run_id))
            while not isinstance(ended := await machines.refresh(run_id), Ended):
                await asyncio.sleep(0.02)
        assert ended.reason == "killed"
        await machines.create(new_run_id(), MachineSpec(LIMITS, 600))
        await found.close()
        assert not any(serving.cluster.api.objects.values())


def test_what_the_tests_apply_is_in_a_namespace_of_their_own() -> None:
    applied = list(manifests())
    for each in applied:
        kubernetes_validate.validate(each, "1.31", strict=True)
    places = {each["metadata"].get("namespace", each["metadata"]["name"]) for each in applied}
    assert places == {NAMESPACE}
    [binding] = [each for each in applied if each["kind"] == "RoleBinding"]
    assert [each["namespace"] for each in binding["subjects"]] == [NAMESPACE]
