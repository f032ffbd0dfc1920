"""What the pool's history needs to remember, as a promise."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.broker.history_model import PoolSample


class HistoryStore(Protocol):
    """The pool's samples of the last day. What a method has returned is durable; each raises
    UnavailableError if the engine is unavailable."""

    async def samples(self, *, since: int) -> Sequence[PoolSample]:
        """Those of this minute and later ones, the oldest first, as last committed."""
        ...

    async def record(self, sample: PoolSample, *, kept_from: int) -> None:
        """Keep it, in place of any other of its minute. Samples before `kept_from` may be
        forgotten: at most a day of them is read or kept."""
        ...
