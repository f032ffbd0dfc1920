"""Answers that are lost, late or refusals."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any

import pytest

from sandyard.tools.fleet.wire import Failed, ServerRefusedError, StallTimeout, Wire


class SlowServer:
    """Reads a request to its end, and answers it if nobody has left after a while."""

    def __init__(
        self,
        answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        *,
        works_sec: float = 0.1,
    ) -> None:
        self.bodies: list[bytes] = []
        self.left = 0
        self.answered = 0
        self._answer = answer
        self._works_sec = works_sec

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                [length] = re.findall(rb"(?i)content-length: (\d+)", head)
                self.bodies.append(await reader.readexactly(int(length)))
                if await self._is_left(reader):
                    self.left += 1
                    return
                writer.write(self._answer)
                self.answered += 1
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def _is_left(self, reader: asyncio.StreamReader) -> bool:
        """Whether the caller leaves while the server works."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._works_sec):
                return await reader.read(1) == b""
        return False


@asynccontextmanager
async def wire_to(server: SlowServer, *, lost_answers: float = 0) -> AsyncIterator[Wire]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    wire = Wire(
        f"http://127.0.0.1:{port}",
        lost_answers=lost_answers,
        stall_timeout=StallTimeout(1, rng=Random(1)),
        rng=Random(1),
    )
    try:
        yield wire
    finally:
        await wire.close()
        listener.close()


async def attempt(wire: Wire) -> Any:
    return await wire.attempt("POST", "/data", headers={}, body={"a": 1}, may_get_lost=True)


async def test_half_of_the_lost_answers_come_and_half_are_not_waited_for() -> None:
    server = SlowServer(works_sec=3)
    async with wire_to(server, lost_answers=1) as wire:
        outcomes = await asyncio.gather(*(attempt(wire) for _ in range(60)))
        async with asyncio.timeout(60):
            while server.left + server.answered < 60:
                await asyncio.sleep(0.02)
    assert all(isinstance(outcome, Failed) for outcome in outcomes)
    assert wire.counters.answers_lost == wire.counters.requests == 60
    assert server.bodies == [b'{"a":1}'] * 60
    assert server.left + server.answered == 60
    assert 15 <= server.left <= 45


async def test_no_answer_is_lost_unless_it_is_asked_for() -> None:
    async with wire_to(SlowServer()) as wire:
        assert await asyncio.gather(*(attempt(wire) for _ in range(60))) == [{}] * 60
    assert wire.counters.answers_lost == 0


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_server_in_trouble_is_asked_again_when_it_says(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n" % status
    async with wire_to(SlowServer(answer)) as wire:
        assert await attempt(wire) == Failed(retry_after_sec=7)


@pytest.mark.parametrize("status", [302, 400, 401, 413])
async def test_a_refusal_is_reported_with_its_status(status: int) -> None:
    answer = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status
    async with wire_to(SlowServer(answer)) as wire:
        with pytest.raises(ServerRefusedError, match=str(status)):
            await attempt(wire)
