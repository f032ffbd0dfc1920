"""Checks after the load: responses still hold, everything is released, and nothing is left over."""

import asyncio
import contextlib
from collections.abc import Mapping

import httpx

from sandyard.tools.gameday.load import Tracks
from sandyard.tools.gameday.model import Promise
from sandyard.tools.gameday.processes import run_once, sandyard_command
from sandyard.tools.gameday.promises import Violation
from sandyard.tools.gameday.stage import Stage

_CLEAN_SEC = 120
_AT_ONCE = 20
_NOT_YET_GONE = ("allocated", "pending_deletion", "deletion_failed")


async def give_all_back(stage: Stage, tracks: Tracks) -> list[Violation]:
    """Each track claims its lease again and marks it; then cleanup runs until nothing is left."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def give_back(track: str) -> None:
        async with turns:
            if await tracks.claim_until_clear(track, asyncio.Event(), is_audit=True):
                await tracks.mark(track)

    await asyncio.gather(*(give_back(each) for each in [*tracks.held, *tracks.unclear]))
    return await _await_deletions(stage)


async def _await_deletions(stage: Stage) -> list[Violation]:
    counts: Mapping[str, int] = {}
    for _ in range(_CLEAN_SEC):
        with contextlib.suppress(httpx.HTTPError):
            await stage.admin("POST", "bulk-delete?status=deletion_failed")
            await stage.admin("POST", "cleanup")
            counts, there = await stage.counts(), await stage.provider_has()
            if not any(counts[each] for each in _NOT_YET_GONE) and counts["total"] == there:
                return []
        await asyncio.sleep(1)
    return [Violation(Promise.NO_LEAK, f"after {_CLEAN_SEC} s of cleanup there is {dict(counts)}")]


async def verified(stage: Stage) -> list[Violation]:
    """`sandyard verify` over the data of the game day."""
    arguments = sandyard_command("verify", "--data-dir", str(stage.data_dir))
    code, printed = await run_once(arguments, stage.settings)
    return [Violation(Promise.CONSISTENT, printed)] if code else []
