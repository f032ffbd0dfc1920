"""Locks by key, for use cases of one process that would change the same thing at once."""

import asyncio
from weakref import WeakValueDictionary


class KeyedLocks:
    """A lock for each key, kept while somebody holds it or waits for it. Whoever waits gets it in
    the order of asking."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
