"""Collects the quotas of an account from all nouns."""

from collections.abc import Awaitable, Callable, Sequence

from sandyard.platform.quotas.model import ResourceQuota

QuotaSource = Callable[[str], Awaitable[Sequence[ResourceQuota]]]
"""The quotas that one part or noun keeps of the account with this id, as they are now."""


class Quotas:
    """Each source adds what it keeps; what is listed takes no part in what is decided."""

    def __init__(self, *sources: QuotaSource) -> None:
        self._sources = list(sources)

    def add(self, source: QuotaSource) -> None:
        self._sources.append(source)

    async def of_account(self, account_id: str) -> Sequence[ResourceQuota]:
        """In the order in which the sources were added."""
        return [each for source in self._sources for each in await source(account_id)]
