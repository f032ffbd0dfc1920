"""The cloud provider, simulated: its sandboxes outlive every fault, its answers do not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.errors import ProviderUnavailableError
from tests.simulation.loop import Process
from tests.simulation.network import Network

T = TypeVar("T")


@dataclass(slots=True)
class Cloud:
    """What it really has."""

    sandboxes: dict[str, Listed] = field(default_factory=dict)
    made: int = 0

    def grow(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            self.create(f"lab-{self.made}")

    def create(self, name: str) -> Listed:
        listed = Listed(f"external-{name}", name)
        self.sandboxes[listed.external_id] = listed
        return listed

    def delete(self, external_id: str) -> None:
        self.sandboxes.pop(external_id, None)


class SimulatedProvider:
    """One replica's view of it."""

    can_create = False

    def __init__(self, cloud: Cloud, network: Network, process: Process) -> None:
        self._cloud = cloud
        self._network = network
        self._process = process

    async def list_sandboxes(self) -> Sequence[Listed]:
        return await self._call(lambda: list(self._cloud.sandboxes.values()))

    async def delete_sandbox(self, external_id: str) -> None:
        await self._call(lambda: self._cloud.delete(external_id))

    async def create_sandbox(self, name: str) -> Listed:
        return await self._call(lambda: self._cloud.create(name))

    async def has_sandbox(self, external_id: str) -> bool:
        return await self._call(lambda: external_id in self._cloud.sandboxes)

    async def circuit_is_open(self) -> bool:
        return False

    async def close(self) -> None:
        pass

    async def _call(self, work: Callable[[], T]) -> T:
        return await self._network.call(
            self._process, work, lost=ProviderUnavailableError, may_double=True
        )
