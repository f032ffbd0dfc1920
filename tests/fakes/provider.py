"""A provider in memory that keeps the port's promises; the HTTP one is tested against a server."""

from collections.abc import Sequence

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.errors import ProviderUnavailableError


class FakeProvider:
    def __init__(self) -> None:
        self.sandboxes: dict[str, Listed] = {}
        self.deleted: dict[str, Listed] = {}
        self.deletes_work = True
        self.list_includes_deleted = False
        self.can_create = True
        self.creations_left = 1000
        self.loses_creations = False

    async def list_sandboxes(self) -> Sequence[Listed]:
        late = list(self.deleted.values()) if self.list_includes_deleted else []
        return [*self.sandboxes.values(), *late]

    async def delete_sandbox(self, external_id: str) -> None:
        if not self.deletes_work:
            raise ProviderUnavailableError
        listed = self.sandboxes.pop(external_id, Listed(external_id, external_id))
        self.deleted[external_id] = listed

    async def create_sandbox(self, name: str) -> Listed:
        made = Listed(f"made-{name}", name)
        if self.creations_left == 0:
            raise ProviderUnavailableError
        self.creations_left -= 1
        self.sandboxes[made.external_id] = made
        if self.loses_creations:
            raise ProviderUnavailableError
        return made

    async def has_sandbox(self, external_id: str) -> bool:
        return external_id in self.sandboxes

    async def close(self) -> None:
        pass
