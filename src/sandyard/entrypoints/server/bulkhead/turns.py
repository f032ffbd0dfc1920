"""Keeps the turns of an event loop short, however many requests are passed on at the same time."""

import asyncio
from collections import deque

_STEPS = 16
"""In one turn of the loop; each takes some 0.1 ms."""


class Turns:
    """Spreads the steps of passed-on requests over the turns of the loop, in the order in which
    they were ready: what else is ready, such as a claim, waits for a few of them at most."""

    def __init__(self, steps: int = _STEPS) -> None:
        self._steps = steps
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def step(self) -> None:
        """Returns when this turn, or a later one, has room for a step."""
        if self._taken < self._steps:
            self._take()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _take(self) -> None:
        if not self._taken:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._taken += 1

    def _next_turn(self) -> None:
        self._taken = 0
        while self._waiting and self._taken < self._steps:
            turn = self._waiting.popleft()
            if not turn.done():  # its caller was cancelled
                turn.set_result(None)
                self._take()
