"""A run in virtual time that a seed repeats exactly."""

import asyncio
import gc
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar
from unittest.mock import patch

from tests.simulation.loop import VirtualTimeLoop


class Outcome(Protocol):
    @property
    def problems(self) -> list[str]: ...


T = TypeVar("T", bound=Outcome)


def run_in_virtual_time(
    seed: int,
    work: Callable[[], Coroutine[Any, Any, T]],
    loop: type[VirtualTimeLoop] = VirtualTimeLoop,
) -> T:
    """What became of it. Errors that nobody expected are problems, also those of jobs, which the
    product logs and survives."""
    random.seed(seed)  # ids and jitter of the product
    with (
        _unexpected_errors() as unexpected,
        _repeatable_memory(),
        patch("anyio.to_thread.run_sync", _without_thread),
        patch("secrets.choice", random.choice),
        patch("secrets.randbelow", random.randrange),
        asyncio.Runner(loop_factory=loop) as runner,
    ):
        outcome = runner.run(work())
    outcome.problems.extend(unexpected)
    return outcome


async def _without_thread(work: Callable[..., Any], *arguments: Any, **_options: Any) -> Any:
    return work(*arguments)


class _Unexpected(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.found.append(f"an unexpected error: {record.exc_info[1]!r}")


@contextmanager
def _unexpected_errors() -> Iterator[list[str]]:
    """A fault in ten calls writes more lines than anybody reads; tracebacks are not expected."""
    handler, root = _Unexpected(), logging.getLogger("sandyard")
    logging.disable(logging.WARNING)
    root.addHandler(handler)
    propagates, root.propagate = root.propagate, False
    try:
        yield handler.found
    finally:
        root.propagate = propagates
        root.removeHandler(handler)
        logging.disable(logging.NOTSET)


@contextmanager
def _repeatable_memory() -> Iterator[None]:
    """Abandoned generators are closed by a task, so no garbage is collected at other times than in
    the run before. What was there before the run is not looked through again after it."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
