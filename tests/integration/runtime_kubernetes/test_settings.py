"""What the settings of the cluster do."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandyard.kit.clock import SystemClock
from sandyard.platform.wiring.kubernetes import open_machines
from sandyard.platform.wiring.runtimes import open_layers
from sandyard.runtime.errors import EnvironmentMissingError, StartFailedError
from sandyard.runtime.kubernetes.api import ApiUnavailableError
from sandyard.runtime.kubernetes.egress import EgressUnavailableError
from sandyard.runtime.kubernetes.machines import KubernetesMachines
from sandyard.runtime.kubernetes.manifest import name_of
from sandyard.runtime.model import MachineSpec
from sandyard.settings import KubernetesSettings, SandboxSettings, SettingsError
from tests.support.kubernetes.admission import NAMESPACE, ROOT_NAMESPACE
from tests.support.kubernetes.api_server import key_of
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.nodes import AGENT_IMAGE, DEBIAN
from tests.support.runtime.programs import LIMITS, new_run_id
from tests.support.servers.certificates import make_certificate


@pytest.fixture
async def found(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Its API server has a certificate of its own."""
    found = Cluster(tmp_path, 1)
    await found.start(make_certificate(tmp_path, "IP:127.0.0.1").serving())
    yield found
    await found.close()


def machines_of(found: Cluster, folder: Path, **settings: str) -> KubernetesMachines:
    chosen = {
        "kubernetes_url": found.api.url,
        "kubernetes_namespace": NAMESPACE,
        "kubernetes_token_file": str(found.address.token_file),
        "kubernetes_ca_file": str(folder / "certificate.pem"),
        "kubernetes_agent_image": AGENT_IMAGE,
        "kubernetes_image": DEBIAN,
        "kubernetes_images": "small=distroless,whole=debian;root;class=kata",
        "kubernetes_root_namespace": ROOT_NAMESPACE,
        "kubernetes_gvisor_class": "gvisor",
        "kubernetes_priority_class": "low",
        "kubernetes_start_timeout_sec": "60",
        "kubernetes_lost_sec": "60",
        **settings,
    }
    sandboxes = SandboxSettings.model_validate(
        {"sandbox_runtime": "kubernetes", "snapshot_store": f"file:{folder / 'share'}"}
    )
    layers = open_layers(sandboxes, folder / "data")
    kubernetes = KubernetesSettings.model_validate(chosen)
    machines = open_machines(sandboxes, kubernetes, folder / "data", SystemClock(), layers)
    found.opened.append(machines)
    return machines


async def test_a_pod_has_the_image_the_classes_and_the_priority(
    found: Cluster, tmp_path: Path
) -> None:
    machines, run_id = machines_of(found, tmp_path), new_run_id()
    await machines.check("gvisor")
    spec = MachineSpec(LIMITS, lifetime_sec=60, root="small", isolation="gvisor")
    await machines.create(run_id, spec)
    pod = found.api.objects["pods"][name_of(run_id)]["spec"]
    assert (pod["runtimeClassName"], pod["priorityClassName"]) == ("gvisor", "low")
    assert [each["image"] for each in pod["containers"]] == ["distroless"]
    with pytest.raises(EnvironmentMissingError):
        await machines.create(new_run_id(), MachineSpec(LIMITS, lifetime_sec=60, root="other"))


async def test_a_volume_has_the_class_of_storage(found: Cluster, tmp_path: Path) -> None:
    machines = machines_of(found, tmp_path, kubernetes_volume_class="ssd")
    await machines.volumes.create("vol-a", 1 << 20)
    [claim] = found.api.objects["persistentvolumeclaims"].values()
    assert claim["spec"]["storageClassName"] == "ssd"


async def test_a_pod_is_given_the_address_of_the_egress_proxy(
    found: Cluster, tmp_path: Path
) -> None:
    proxy = {
        "kubernetes_egress_proxy": "localhost:3128",
        "kubernetes_egress_replicas": "away.invalid:3128",
    }
    machines, run_id = machines_of(found, tmp_path, **proxy), new_run_id()
    await machines.create(run_id, MachineSpec(LIMITS, lifetime_sec=60))
    url = machines.records.of(run_id).text("proxy") or ""
    assert url.endswith("@127.0.0.1:3128")
    with pytest.raises(EgressUnavailableError) as failed:
        await machines.egress_report(run_id)
    assert "away.invalid" in str(failed.value.reason)


async def test_a_pod_that_finds_no_room_in_time_did_not_start(
    found: Cluster, tmp_path: Path
) -> None:
    machines = machines_of(found, tmp_path, kubernetes_start_timeout_sec="1")
    found.nodes.has_room = False
    with pytest.raises(StartFailedError, match="insufficient memory"):
        await machines.create(new_run_id(), MachineSpec(LIMITS, lifetime_sec=60))


async def test_an_api_server_with_another_certificate_is_not_trusted(
    found: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = make_certificate(tmp_path / "other", "IP:127.0.0.1")
    machines = machines_of(found, tmp_path, kubernetes_ca_file=str(other.file))
    with pytest.raises(ApiUnavailableError):
        await machines.check()


async def test_an_image_with_root_has_a_pod_in_the_namespace_for_it(
    found: Cluster, tmp_path: Path
) -> None:
    machines, run_id = machines_of(found, tmp_path), new_run_id()
    await machines.create(run_id, MachineSpec(LIMITS, lifetime_sec=60, root="whole"))
    pod = found.api.objects["pods"][key_of(ROOT_NAMESPACE, name_of(run_id))]["spec"]
    assert (pod["runtimeClassName"], pod["hostUsers"]) == ("kata", False)
    with pytest.raises(SettingsError, match="KUBERNETES_IMAGES: debian;roott"):
        machines_of(found, tmp_path, kubernetes_images="whole=debian;roott")


@pytest.mark.parametrize(
    "missing", ["kubernetes_url", "kubernetes_agent_image", "kubernetes_root_namespace"]
)
async def test_without_what_it_needs_nothing_is_opened(
    found: Cluster, tmp_path: Path, missing: str
) -> None:
    with pytest.raises(SettingsError, match=missing.upper()):
        machines_of(found, tmp_path, **{missing: None})  # type: ignore[arg-type]
