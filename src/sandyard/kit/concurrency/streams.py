"""Limits how many streams each caller has open at a time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from sandyard.kit.errors import RateLimitedError


class TooManyStreamsError(RateLimitedError):
    """Too many streams are open. Close some of them first."""


class StreamLimit:
    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def check(self, key: str) -> None:
        """Raises TooManyStreamsError if another can't be opened; for a status before the stream."""
        if self._open[key] >= self._most:
            raise TooManyStreamsError(details={"limit": self._most})

    @contextmanager
    def opened(self, key: str) -> Iterator[None]:
        """Raises TooManyStreamsError."""
        self.check(key)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]
