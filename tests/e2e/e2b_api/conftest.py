"""A server for E2B's SDKs, with two accounts that know nothing of each other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import Person, signed_up

ROOMY = {"QUOTA_SANDBOXES": "100", "QUOTA_CPU": "200", "QUOTA_MEMORY_GB": "200"}


@dataclass(frozen=True)
class E2bServer:
    server: ServerProcess
    keys: Mapping[str, str]
    people: Mapping[str, Person]

    def environment(self, whose: str = "ann") -> dict[str, str]:
        """What an SDK is told."""
        url = f"{self.server.url}/e2b"
        return {"E2B_API_KEY": self.keys[whose], "E2B_API_URL": url, "E2B_SANDBOX_URL": url}


def e2b_key(person: Person, scope: str = "run") -> str:
    body = {"name": f"sdk {scope}", "scope": scope, "format": "e2b"}
    return str(person.call("POST", "/api-keys", body, expect=201)["api_key"])


@pytest.fixture(scope="module")
def e2b(tmp_path_factory: pytest.TempPathFactory, kernels: Path | None) -> Iterator[E2bServer]:
    environment = ROOMY | ({} if kernels is None else {"SANDBOX_KERNELS": str(kernels)})
    folder = tmp_path_factory.mktemp("e2b") / "data"
    with sandyard_serve(folder, environment=environment) as server:
        ann, bob = signed_up(server, "ann", mail=1), signed_up(server, "bob", mail=2)
        people = {"ann": ann, "bob": bob}
        yield E2bServer(server, {name: e2b_key(each) for name, each in people.items()}, people)


@pytest.fixture(scope="module")
def kernels() -> Path | None:
    """Where Jupyter kernels are; none unless a module says so."""
    return None
