"""The move of parts from one engine to another, step by step.

At every moment at most one store of a part is open: the source is withdrawn before anything is
copied, and the target is opened after the source was closed for good. Each step is recorded in the
stores themselves, so a move that broke off goes on where it was, or back.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from sandyard.bootstrap.registry import get_spec
from sandyard.entrypoints.move.errors import MoveError
from sandyard.entrypoints.move.part_move import PartMove
from sandyard.entrypoints.move.sink_positions import move_positions
from sandyard.kit import ids
from sandyard.kit.store_states import Phase, StoreState
from sandyard.wiring.spec import Counting
from sandyard.wiring.stores import Store

_WITHDRAWN = (Phase.MOVING, Phase.MOVED)


@dataclass(frozen=True, slots=True)
class MoveOptions:
    counting: Counting
    report: Callable[[str], None]
    """Called with a line after each step."""
    replaces: bool = False
    """Delete what an earlier move away from the target has left there."""
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep


async def move(pairs: Sequence[tuple[Store, Store]], broker: Store, options: MoveOptions) -> None:
    """Move parts from the first to the second of each pair of stores, or go on with that. `broker`
    is where the Broker's data is, which has the positions of sinks in all logs."""
    async with AsyncExitStack() as stack:
        parts = [part for part in await _opened(stack, pairs) if await _is_moved(part, options)]
        if not parts:
            raise MoveError("There is nothing to move.")
        await _Forward(parts, broker, options).run()


async def move_back(pairs: Sequence[tuple[Store, Store]], options: MoveOptions) -> None:
    """Open the sources again, if no target is open yet, and empty the targets."""
    async with AsyncExitStack() as stack:
        opened = await _opened(stack, pairs)
        parts = [each for each in opened if _is_filling(each) or _is_withdrawn(each)]
        if not parts:
            raise MoveError("No move is in progress.")
        for part in filter(_is_done, opened):
            raise MoveError(
                f"{part.name} is open on {part.target.engine} already. Run the same command "
                "without --back to finish; then move back with --from and --to exchanged."
            )
        for part in filter(_is_filling, parts):
            await part.change_target(Phase.RETURNED, _id(part.there), _now())
            options.report(f"{part.name}: given up on {part.target.engine}")
        for part in parts:
            await part.accept_writes(part.sources)
            if _phase(part.here) in _WITHDRAWN:
                await part.change_source(Phase.OPEN, _id(part.here), _now())
            options.report(f"{part.name}: open on {part.source.engine} again")
        for part in parts:
            await part.empty_target()


async def _opened(
    stack: AsyncExitStack, pairs: Sequence[tuple[Store, Store]]
) -> Sequence[PartMove]:
    parts = []
    for source, target in pairs:
        sources = await stack.enter_async_context(source.states())
        targets = await stack.enter_async_context(target.states())
        part = PartMove(get_spec(source.part), source, target, sources, targets)
        await part.look()
        parts.append(part)
    return parts


def _is_done(part: PartMove) -> bool:
    """Whether the last move of both stores was this one, and has ended."""
    is_open = _phase(part.here) is Phase.MOVED and _phase(part.there) is Phase.OPEN
    return is_open and _id(part.here) == _id(part.there)


def _is_filling(part: PartMove) -> bool:
    """Whether a move between these two stores has begun and not ended."""
    there = part.there
    if there is None or (there.phase, there.other) != (Phase.FILLING, part.source.description):
        return False
    return _phase(part.here) not in _WITHDRAWN or _id(part.here) == there.move_id


def _is_withdrawn(part: PartMove) -> bool:
    here = part.here
    is_ours = here is not None and here.other == part.target.description
    return is_ours and _phase(here) is Phase.MOVING


async def _is_moved(part: PartMove, options: MoveOptions) -> bool:
    """Whether the part has something to move; raises MoveError if it can't be moved."""
    if _is_done(part):
        options.report(f"{part.name}: was moved already")
        return False
    if _is_filling(part):
        return True
    if _is_withdrawn(part):
        raise MoveError(f"A move of {part.name} was being taken back. Use --back to finish that.")
    if part.here is not None and part.here.phase is not Phase.OPEN:
        state = f"{part.here.phase}, {part.here.other}"
        raise MoveError(f"{part.name} is not open on {part.source.engine} ({state}).")
    if await part.sources.is_empty():
        if part.there is None:
            await part.upgrade_target()
        options.report(f"{part.name}: nothing to move")
        return False
    await _require_free(part, replaces=options.replaces)
    return True


async def _require_free(part: PartMove, *, replaces: bool) -> None:
    """The target is unused, or has what an earlier move away from it has left."""
    phase = _phase(part.there)
    if phase is Phase.MOVED and not replaces:
        raise MoveError(
            f"{part.name} still has the data on {part.target.engine} that was moved away from "
            "there. Use --replace to delete it."
        )
    is_unused = phase in (None, Phase.RETURNED, Phase.OPEN) and await part.targets.is_empty()
    if phase is not Phase.MOVED and not is_unused:
        raise MoveError(f"{part.name} has data on {part.target.engine} already: use an empty one.")


class _Forward:
    def __init__(self, parts: Sequence[PartMove], broker: Store, options: MoveOptions) -> None:
        self._parts = parts
        self._broker = broker
        self._options = options
        begun = [_id(each.there) for each in parts if _is_filling(each)]
        self._move_id = begun[0] if begun else ids.holder_id()

    async def run(self) -> None:
        left = [each for each in self._parts if _phase(each.here) is not Phase.MOVED]
        for part in left:
            await part.require_schemas()
        await self._begin_filling(left)
        await self._withdraw(left)
        for part in left:
            await part.copy(self._options.counting)
            self._options.report(f"{part.name}: copied")
        for part in left:
            self._options.report(await part.check(self._options.counting))
        if left:
            await move_positions(left, self._broker)
            self._options.report("positions of event sinks: translated")
        for part in left:
            await part.change_source(Phase.MOVED, _id(part.here), _now())
            self._options.report(f"{part.name}: closed on {part.source.engine}")
        for part in self._parts:
            await part.change_target(Phase.OPEN, _id(part.there), _now())
            self._options.report(f"{part.name}: open on {part.target.engine}")

    async def _begin_filling(self, parts: Sequence[PartMove]) -> None:
        """A target is closed before anything is in it."""
        for part in parts:
            if not _is_filling(part):
                await part.change_target(Phase.FILLING, self._move_id, _now())
            self._options.report(f"{part.name}: closed on {part.target.engine}")
            await part.prepare_target()

    async def _withdraw(self, parts: Sequence[PartMove]) -> None:
        """Afterwards no process writes into a source, or ever will."""
        for part in parts:
            if _phase(part.here) is not Phase.MOVING:
                await part.change_source(Phase.MOVING, _id(part.there), _now())
            self._options.report(f"{part.name}: withdrawn from {part.source.engine}")
        await self._options.wait(max((part.wait_sec for part in parts), default=0))
        for part in parts:
            await part.refuse_source_writes()
            self._options.report(f"{part.name}: no process writes to {part.source.engine}")


def _phase(state: StoreState | None) -> Phase | None:
    return None if state is None else state.phase


def _id(state: StoreState | None) -> str:
    return "" if state is None else state.move_id


def _now() -> int:
    return int(time.time())
