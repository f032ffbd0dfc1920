"""Locks by key, for use cases in one process that may change the same thing concurrently."""

import asyncio
from weakref import WeakValueDictionary


class KeyedLocks:
    """One lock per key, removed when no one holds it or waits for it. Waiters acquire it in FIFO
    order."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock
