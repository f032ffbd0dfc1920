"""The attacks of the prober: each is a row of `ATTACKS`, and runs in a process of its own.

To add one, write a coroutine that attacks until it is cancelled, and add a row. What it sends goes
through the attacker's `Uplink`, which has 10 MB/s.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

UPLINK_BYTES_PER_SEC = 10_000_000
_PIECE = 64 * 1024


@dataclass
class Uplink:
    """One address's connections to the server."""

    host: str
    port: int
    _free_at: float = field(default_factory=time.monotonic)

    async def request(self, head: str, body: bytes = b"", *, to: str = "localhost") -> bytes:
        """Send it on a new connection; returns what the server answers until it closes."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            more = f"Host: {to}\r\nConnection: close\r\nContent-Length: {len(body)}"
            await self._send(writer, f"{head}\r\n{more}\r\n\r\n".encode())
            for begin in range(0, len(body), _PIECE):
                await self._send(writer, body[begin : begin + _PIECE])
            return await reader.read()
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Wait for a turn: all connections share the uplink."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + len(piece) / UPLINK_BYTES_PER_SEC
        await asyncio.sleep(self._free_at - now)
        writer.write(piece)
        await writer.drain()


Run = Callable[[Uplink], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Attack:
    run: Run
    in_ci: bool = False
    """Whether it also runs in `make test`, not only in `make torture`."""


async def _at_once(count: int, act: Callable[[], Awaitable[Any]]) -> None:
    """So many connections that do this again and again; the server may refuse or close each."""

    async def again_and_again() -> None:
        while True:
            with suppress(OSError):
                await act()
            await asyncio.sleep(0)

    await asyncio.gather(*(again_and_again() for _ in range(count)))


async def unknown_keys(uplink: Uplink) -> None:
    keys = json.dumps({f"unknown_{number:012}": number for number in range(30_000)}).encode()
    await _at_once(60, lambda: uplink.request(_post("/api/v1/auth/login"), keys))


async def passwords(uplink: Uplink) -> None:
    wrong = json.dumps({"login": "nobody", "password": "wrong-password-of-nobody"}).encode()
    await _at_once(60, lambda: uplink.request(_post("/api/v1/auth/login"), wrong))


async def unknown_hosts(uplink: Uplink) -> None:
    host, body = "8080-sbx-abcdefghijklmnopq.localhost", bytes(1_000_000)
    await _at_once(60, lambda: uplink.request("PUT / HTTP/1.1", body, to=host))


async def pages(uplink: Uplink) -> None:
    await _at_once(60, lambda: uplink.request("GET /console/login HTTP/1.1"))


async def documents(uplink: Uplink) -> None:
    await _at_once(60, lambda: uplink.request("GET /openapi.json HTTP/1.1"))


async def claims_without_a_token(uplink: Uplink) -> None:
    body = json.dumps({"a": [[]] * 300_000}).encode()
    await _at_once(60, lambda: uplink.request(_post("/v1/allocate"), body))


def _post(path: str) -> str:
    return f"POST {path} HTTP/1.1\r\nContent-Type: application/json"


ATTACKS = {
    "unknown keys": Attack(unknown_keys, in_ci=True),
    "passwords": Attack(passwords),
    "unknown hosts": Attack(unknown_hosts),
    "pages": Attack(pages),
    "documents": Attack(documents),
    "claims without a token": Attack(claims_without_a_token),
}

if __name__ == "__main__":
    place = urlsplit(sys.argv[2])
    asyncio.run(ATTACKS[sys.argv[1]].run(Uplink(str(place.hostname), int(place.port or 0))))
