"""Use of an account's quota by its sandboxes."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.platform.quotas.model import ResourceQuota, Resources


class ResourceCounter(Protocol):
    async def in_use(self, account_id: str) -> Resources:
        """By the account's sandboxes that are starting or running."""
        ...

    async def snapshot_bytes(self, account_id: str) -> int:
        """The size of all its snapshots."""
        ...


class SandboxQuotas:
    def __init__(self, counter: ResourceCounter, quota: Resources) -> None:
        self._counter = counter
        self._quota = quota

    async def of_account(self, account_id: str) -> Sequence[ResourceQuota]:
        in_use, quota = await self._counter.in_use(account_id), self._quota
        snapshot_bytes = await self._counter.snapshot_bytes(account_id)
        return (
            ResourceQuota("sandboxes", in_use.sandboxes, quota.sandboxes),
            ResourceQuota("cpu", in_use.cpu, quota.cpu),
            ResourceQuota("memory_gb", in_use.memory_gb, quota.memory_gb),
            ResourceQuota("snapshot_bytes", snapshot_bytes, None),
        )
