"""The ports to the cloud provider, and to what the pool stores about it."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.model import Autoscaler, ProviderBinding


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


class ProviderStateStore(Protocol):
    """A part of `PoolStore`, with its promises: both change by `apply_together`."""

    async def find_autoscaler(self) -> Autoscaler | None:
        """The autoscaler's state, as last committed; None before its first run."""

    async def find_provider(self) -> ProviderBinding | None:
        """The provider that the pool belongs to, as last committed."""
