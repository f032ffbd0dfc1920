"""Collects the quotas of an account from all nouns."""

from collections.abc import Awaitable, Callable, Sequence

from sandyard.platform.quotas.model import ResourceQuota

QuotaSource = Callable[[str], Awaitable[Sequence[ResourceQuota]]]
"""The current quotas of one part or noun for the account with this id."""


class Quotas:
    """Each source adds its quotas; the list is informational, and no decision uses it."""

    def __init__(self, *sources: QuotaSource) -> None:
        self._sources = list(sources)

    def add(self, source: QuotaSource) -> None:
        self._sources.append(source)

    async def of_account(self, account_id: str) -> Sequence[ResourceQuota]:
        """In the order in which the sources were added."""
        return [each for source in self._sources for each in await source(account_id)]
