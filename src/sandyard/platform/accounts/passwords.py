"""Argon2id password hashing in separate threads, so that it never blocks the event loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imported where it is used: most starts need it late or never
    from argon2 import PasswordHasher

TIME_COST = 2
MEMORY_KIB = 19 * 1024
_THREADS = 2


class Argon2Passwords:
    """The costs that OWASP recommends for one lane."""

    def __init__(self, *, time_cost: int = TIME_COST, memory_kib: int = MEMORY_KIB) -> None:
        self._time_cost = time_cost
        self._memory_kib = memory_kib
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="passwords")

    @cached_property
    def _hasher(self) -> "PasswordHasher":
        from argon2 import PasswordHasher

        return PasswordHasher(
            time_cost=self._time_cost, memory_cost=self._memory_kib, parallelism=1
        )

    async def hash(self, password: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: self._hasher.hash(password))

    async def verify(self, password: str, password_hash: str) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._verify, password, password_hash)

    def is_outdated(self, password_hash: str) -> bool:
        return self._hasher.check_needs_rehash(password_hash)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _verify(self, password: str, password_hash: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False
