"""What an attack must leave untouched."""

from sandyard.runtime.local.runtime import LocalRuntime
from tests.integration.runtime.programs import STATIC, fetch, started


async def still_works(runtime: LocalRuntime) -> None:
    """Another sandbox starts and serves."""
    async with started(runtime, STATIC) as other:
        assert b"hello" in await fetch(other.url)
