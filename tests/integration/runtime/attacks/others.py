"""What an attack must leave untouched."""

from tests.support.runtime.local_runtime import LocalRuntime
from tests.support.runtime.programs import STATIC, started


async def still_works(runtime: LocalRuntime) -> None:
    """Another sandbox starts and serves."""
    async with started(runtime, STATIC) as other:
        assert b"hello" in await runtime.fetch(other)
