"""What an attacker has: an address with an uplink of 10 MB/s, an account, a client of the pool."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

UPLINK_BYTES_PER_SEC = 10_000_000
_PIECE = 64 * 1024
NEVER_READ = 0


@dataclass
class Attacker:
    url: str
    account: dict[str, str]
    """The headers of an account's login."""
    track: dict[str, str]
    """The headers of a client of the Broker that may have one lease."""
    is_ready: Callable[[], None]
    """Call it when all is prepared, and the attack begins."""
    _free_at: float = field(default_factory=time.monotonic)

    async def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """A call of the account that has to succeed, for what an attack needs beforehand."""
        async with httpx.AsyncClient(base_url=self.url, timeout=60) as client:
            answer = await client.request(method, path, json=body, headers=headers or self.account)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else None

    async def new_sandbox(self, **fields: Any) -> dict[str, str]:
        """The headers of calls into a new sandbox of E2B's API."""
        body = {"templateID": "base", "timeout": 3600, **fields}
        made = await self.call("POST", "/e2b/v2/sandboxes", body)
        return {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["envdAccessToken"]}

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        to: str = "localhost",
        reads: int = -1,
    ) -> bytes:
        """Send it on a new connection; returns what the server answers until it closes, or until
        that many bytes have come."""
        place = urlsplit(self.url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        try:
            fields = {"Host": to, "Connection": "close", "Content-Length": str(len(body))}
            lines = [f"{name}: {value}" for name, value in (fields | dict(headers or {})).items()]
            await self._send(
                writer, "\r\n".join([f"{method} {path} HTTP/1.1", *lines, "", ""]).encode()
            )
            for begin in range(0, len(body), _PIECE):
                await self._send(writer, body[begin : begin + _PIECE])
            if reads == NEVER_READ:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                await asyncio.Event().wait()
            return await reader.read(reads)
        finally:
            writer.close()

    async def _send(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        """Wait for a turn: all connections share the uplink."""
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + len(piece) / UPLINK_BYTES_PER_SEC
        await asyncio.sleep(self._free_at - now)
        writer.write(piece)
        await writer.drain()

    async def at_once(
        self, count: int, act: Callable[[], Awaitable[Any]], *, pause_sec: float = 0
    ) -> None:
        """So many at a time that do this again and again; the server may refuse or close each."""

        async def again_and_again() -> None:
            while True:
                with suppress(OSError):
                    await act()
                await asyncio.sleep(pause_sec)

        self.is_ready()
        await asyncio.gather(*(again_and_again() for _ in range(count)))


Run = Callable[[Attacker], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Attack:
    run: Run
    in_ci: bool = False
    """Whether it also runs in `make test`, not only in `make torture`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    disk_megabytes: int = 0
    """The size of the server's disk, if it has one of its own."""
