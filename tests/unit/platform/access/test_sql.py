"""Lookups of credentials that many callers share."""

import asyncio
from typing import Any, cast

from sandyard.kit.sql.database import Database
from sandyard.platform.access.sql import SqlCredentialLookup


class _Engine:
    """Knows no key; each read ends when it is let go."""

    def __init__(self) -> None:
        self.reads: list[asyncio.Event] = []
        self.begun = asyncio.Event()

    async def read(self, _work: Any) -> None:
        ended = asyncio.Event()
        self.reads.append(ended)
        self.begun.set()
        await ended.wait()


async def test_who_asks_while_a_key_is_looked_up_shares_the_next_lookup() -> None:
    engine = _Engine()
    lookup = SqlCredentialLookup(cast("Database", engine))
    first = asyncio.create_task(lookup.find_key("k"))
    await engine.begun.wait()
    engine.begun.clear()
    later = [asyncio.create_task(lookup.find_key("k")) for _ in range(200)]
    await asyncio.sleep(0)
    engine.reads[0].set()
    assert await first is None
    await engine.begun.wait()
    assert not any(each.done() for each in later)  # the first read began before they asked
    engine.reads[1].set()
    assert await asyncio.gather(*later) == [None] * 200
    assert len(engine.reads) == 2


async def test_other_keys_are_looked_up_at_once() -> None:
    engine = _Engine()
    lookup = SqlCredentialLookup(cast("Database", engine))
    tasks = [asyncio.create_task(lookup.find_key(name)) for name in ("a", "b")]
    while len(engine.reads) < len(tasks):
        await engine.begun.wait()
        engine.begun.clear()
    for read in engine.reads:
        read.set()
    assert await asyncio.gather(*tasks) == [None, None]
