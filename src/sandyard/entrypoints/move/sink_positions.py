"""The positions of event sinks in the logs that move: each engine has its own form of them."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from sandyard.broker.delivery.model import StreamState
from sandyard.broker.wiring.pool import opened_pool
from sandyard.entrypoints.move.part_move import PartMove
from sandyard.kit.changes.events import EventLog
from sandyard.wiring.stores import Store

_FIXED_SINKS = ("sqs", "sns", "s3")
_RECORD = "#positions"

Logs = dict[str, tuple[EventLog, EventLog]]
"""By part, its log in the source and in the target."""


async def move_positions(parts: Sequence[PartMove], broker: Store) -> None:
    """Each sink continues in the new logs with the first event that it has not got. Events around
    it that were written concurrently may be sent again."""
    moved = next((part for part in parts if part.name == "broker"), None)
    source = broker if moved is None else moved.source
    target = broker if moved is None else moved.target
    if source.engine == "sqlite" and not (_folder(source) / "broker.db").exists():
        return
    async with AsyncExitStack() as stack:
        logs: Logs = {}
        for part in parts:
            here, there = [
                await stack.enter_async_context(part.spec.log(each.settings, _folder(each)))
                for each in (part.source, part.target)
            ]
            logs[part.name] = here, there
        old, new = [
            (await stack.enter_async_context(opened_pool(each.settings, _folder(each)))).deliveries
            for each in (source, target)
        ]
        sinks = [each.webhook_id for each in await old.webhooks()]
        streams = [each for sink in (*sinks, *_FIXED_SINKS) for each in await old.streams(sink)]
        by_name = {part.name: part for part in parts}
        for part in parts:
            await _record_positions(part, streams)
        for state in streams:
            if state.part in by_name:
                translated = await _translated(state, by_name[state.part], *logs[state.part])
                await new.save_stream(translated)
            elif moved is not None:
                await new.save_stream(state)


async def _record_positions(part: PartMove, streams: Sequence[StreamState]) -> None:
    """In the target, before the first one is translated: if this breaks off, the old positions are
    still known."""
    if part.there is not None and _RECORD not in part.there.done:
        positions = {each.sink: each.position for each in streams if each.part == part.name}
        await part.record_done(_RECORD, positions)


async def _translated(
    state: StreamState, part: PartMove, here: EventLog, there: EventLog
) -> StreamState:
    record = {} if part.there is None else part.there.done[_RECORD]
    old: str | None = record.get(state.sink, state.position)
    if old is None:
        return state
    return replace(state, position=await there.position_at(await here.first_id_after(old)))


def _folder(store: Store) -> Path:
    return store.data_dir or Path()
