"""E2B's own SDK against a server whose sandboxes are Pods: the scripts that run on this machine
too."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.e2b_api.conftest import ROOMY, E2bServer, e2b_key
from tests.e2e.e2b_api.test_sdks import SCRIPTS, run
from tests.support.kubernetes.serving import serving_cluster
from tests.support.servers.processes import sandyard_serve
from tests.support.servers.users import signed_up

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def e2b(tmp_path_factory: pytest.TempPathFactory) -> Iterator[E2bServer]:
    folder = tmp_path_factory.mktemp("e2b-pods")
    with (
        serving_cluster(folder / "cluster", nodes=2) as serving,
        sandyard_serve(folder / "data", environment=ROOMY | serving.settings) as server,
    ):
        ann = signed_up(server, "ann", mail=1)
        yield E2bServer(server, {"ann": e2b_key(ann)}, {"ann": ann})


_NOT_HERE = ("root", "root_builds", "networks", "refused_builds")
"""What needs root, an egress proxy, or a server that pulls images itself."""
_OTHERS = ("snapshots", "forks", "notes", "traffic")


def test_builds(e2b: E2bServer) -> None:
    left_out = (*_NOT_HERE, *_OTHERS)
    run([sys.executable, str(SCRIPTS / "kept_calls.py"), *left_out], e2b.environment())


@pytest.mark.torture
def test_snapshots_forks_and_ports(e2b: E2bServer) -> None:
    left_out = (*_NOT_HERE, "builds")
    run([sys.executable, str(SCRIPTS / "kept_calls.py"), *left_out], e2b.environment())


@pytest.mark.torture
@pytest.mark.parametrize("script", ["sync_calls", "volume_calls", "async_calls"])
def test_every_call_of_the_sdk(e2b: E2bServer, script: str) -> None:
    run([sys.executable, str(SCRIPTS / f"{script}.py")], e2b.environment())
