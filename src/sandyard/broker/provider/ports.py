"""The port to the cloud provider."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.pool.model import Listed


class Provider(Protocol):
    """The cloud that owns the sandboxes.

    Raises ProviderUnavailableError if it does not respond properly, and CircuitOpenError, without a
    request, while the circuit is open.
    """

    async def list_sandboxes(self) -> Sequence[Listed]:
        """The complete list, or an error: never a part of it."""

    async def delete_sandbox(self, external_id: str) -> None:
        """Return when it is gone, by this call or an earlier one."""

    @property
    def can_create(self) -> bool:
        """Whether its API can create sandboxes."""

    async def create_sandbox(self, name: str) -> Listed:
        """Create a sandbox with this name. After ProviderUnavailableError it may exist or not: the
        list shows it by its name. Raises CreationNotSupportedError if the provider can't create
        sandboxes."""

    async def has_sandbox(self, external_id: str) -> bool:
        """Whether the provider reports now that it exists and is in use."""

    async def close(self) -> None: ...
