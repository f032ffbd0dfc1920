"""E2B's pauses and forks keep memory and processes, where sandboxes have kernels of their own."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.e2b_api.conftest import ROOMY, e2b_key
from tests.e2e.e2b_api.test_sdks import SCRIPTS, run
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("memory") / "data"
    with sandyard_serve(folder, environment=ROOMY | {"SANDBOX_ISOLATION": "gvisor"}) as server:
        yield server


@pytest.fixture(scope="module")
def ann(server: ServerProcess) -> Person:
    return signed_up(server, "ann", mail=1)


def test_the_python_sdk_pauses_and_forks_with_memory(server: ServerProcess, ann: Person) -> None:
    url = f"{server.url}/e2b"
    run(
        [sys.executable, str(SCRIPTS / "memory_calls.py")],
        {"E2B_API_KEY": e2b_key(ann), "E2B_API_URL": url, "E2B_SANDBOX_URL": url},
    )
