"""What accounts store, counted in one place, and their quota of it."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from sandyard.kit.errors import ConflictError
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.quotas.model import ResourceQuota, Resources, exceeded

StorageSource = Callable[[str], Awaitable[int]]
"""The bytes that a part stores for the account with this id."""


class ResourceCounter(Protocol):
    async def in_use(self, account_id: str, *, workspace_gb: float) -> Resources:
        """By the account's sandboxes that are starting or running, and its stored files."""

    async def snapshot_bytes(self, account_id: str) -> int:
        """The size of all its snapshots."""


class StorageQuota:
    """The one place that counts what an account stores: its sandboxes' workspaces, by what they may
    store, snapshots, archives, and what other sources have."""

    def __init__(self, counter: ResourceCounter, *, limit_gb: float, workspace_gb: float) -> None:
        self._counter = counter
        self._limit_gb = limit_gb
        self._workspace_gb = workspace_gb
        self._sources: list[StorageSource] = []

    @property
    def limit_gb(self) -> float:
        return self._limit_gb

    def add(self, source: StorageSource) -> None:
        self._sources.append(source)

    async def elsewhere_gb(self, account_id: str) -> float:
        return sum([await source(account_id) for source in self._sources]) / GIGABYTE

    async def quota(self, account_id: str) -> ResourceQuota:
        in_use = await self._counter.in_use(account_id, workspace_gb=self._workspace_gb)
        stored_gb = in_use.storage_gb + await self.elsewhere_gb(account_id)
        return ResourceQuota("storage_gb", round(stored_gb, 6), self._limit_gb)

    async def left_bytes(self, account_id: str) -> int:
        in_use = (await self.quota(account_id)).in_use
        return max(0, int((self._limit_gb - in_use) * GIGABYTE))

    async def require(
        self, account_id: str, size_bytes: int, *, error: type[ConflictError]
    ) -> None:
        """Raises the error, with the numbers, if the account may not store that much more."""
        quota, asked_gb = await self.quota(account_id), size_bytes / GIGABYTE
        if quota.in_use + asked_gb > self._limit_gb:
            numbers = {"limit": self._limit_gb, "in_use": quota.in_use, "asked": asked_gb}
            raise exceeded({"storage_gb": numbers}, error)
