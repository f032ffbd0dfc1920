"""The port to the storage of the pool's history."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.history.model import PoolSample


class HistoryStore(Protocol):
    """The pool's samples of the last day. Returned results are durable; every method raises
    UnavailableError if the engine is unavailable."""

    async def samples(self, *, since: int) -> Sequence[PoolSample]:
        """Samples from this minute on, oldest first, as last committed."""

    async def record(self, sample: PoolSample, *, kept_from: int) -> None:
        """Store the sample, replacing any other of its minute. Samples before `kept_from` may be
        removed: at most a day of them is read or stored."""
