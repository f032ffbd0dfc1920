"""What an attack must leave untouched."""

from tests.integration.runtime.local import LocalRuntime
from tests.integration.runtime.programs import STATIC, started


async def still_works(runtime: LocalRuntime) -> None:
    """Another sandbox starts and serves."""
    async with started(runtime, STATIC) as other:
        assert b"hello" in await runtime.fetch(other)
