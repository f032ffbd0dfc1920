"""The quotas of an account, from all nouns, and those of its sandboxes."""

from collections.abc import Awaitable, Callable, Sequence

from sandyard.platform.quotas.model import ResourceQuota, Resources
from sandyard.platform.quotas.storage import ResourceCounter, StorageQuota

QuotaSource = Callable[[str], Awaitable[Sequence[ResourceQuota]]]
"""The current quotas of one part or noun for the account with this id."""


class Quotas:
    """Each source adds its quotas; the list is informational, and no decision uses it."""

    def __init__(self, *sources: QuotaSource) -> None:
        self._sources = list(sources)

    def add(self, source: QuotaSource) -> None:
        self._sources.append(source)

    async def of_account(self, account_id: str) -> Sequence[ResourceQuota]:
        return [each for source in self._sources for each in await source(account_id)]


async def sandbox_quotas(
    counter: ResourceCounter, quota: Resources, storage: StorageQuota, account_id: str
) -> Sequence[ResourceQuota]:
    in_use = await counter.in_use(account_id, workspace_gb=0)
    snapshot_bytes = await counter.snapshot_bytes(account_id)
    return (
        ResourceQuota("sandboxes", in_use.sandboxes, quota.sandboxes),
        ResourceQuota("cpu", in_use.cpu, quota.cpu),
        ResourceQuota("memory_gb", in_use.memory_gb, quota.memory_gb),
        await storage.quota(account_id),
        ResourceQuota("snapshot_bytes", snapshot_bytes, None),
    )
