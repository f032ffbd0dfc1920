"""One side of a connection by TLS, over streams of which the first bytes may be read already."""

import asyncio
import ssl
from contextlib import suppress

from sandyard.runtime.egress.relay import Streams

_CHUNK_BYTES = 256 * 1024
_HTTP = ("http/1.1",)


class TlsStream:
    """For one reader and one writer at a time. Raises OSError (ssl.SSLError is one) and, if nothing
    comes or goes for `idle_sec`, TimeoutError."""

    def __init__(
        self,
        streams: Streams,
        context: ssl.SSLContext,
        *,
        server_name: str | None = None,
        first: bytes = b"",
        idle_sec: float,
    ) -> None:
        """To the server of this name; without one, it is the server itself."""
        self._reader, self._writer = streams
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._incoming.write(first)
        self._idle_sec = idle_sec
        self._tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_name is None,
            server_hostname=server_name,
        )

    async def handshake(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._fill()
            else:
                return await self._flush()
            finally:
                if self._outgoing.pending:  # the reason of a failure
                    self._writer.write(self._outgoing.read())

    async def read(self) -> bytes:
        """Empty at the end."""
        while True:
            if found := self._decrypted():
                return found
            if self._incoming.eof:
                return b""
            await self._flush()
            await self._fill()

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    def close(self) -> None:
        with suppress(OSError, ValueError):  # the other side has not closed it, or its end is lost
            self._tls.unwrap()
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
        self._writer.close()

    def _decrypted(self) -> bytes:
        """All that has come, up to a chunk."""
        pieces, left = [], _CHUNK_BYTES
        try:
            while left > 0 and (piece := self._tls.read(left)):
                pieces.append(piece)
                left -= len(piece)
        except ssl.SSLWantReadError:
            pass
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            self._incoming.write_eof()
        return b"".join(pieces)

    async def _fill(self) -> None:
        async with asyncio.timeout(self._idle_sec):
            if data := await self._reader.read(_CHUNK_BYTES):
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    async def _flush(self) -> None:
        if self._outgoing.pending:
            self._writer.write(self._outgoing.read())
            async with asyncio.timeout(self._idle_sec):
                await self._writer.drain()


def http_only(context: ssl.SSLContext) -> ssl.SSLContext:
    """No other protocol is offered, so that all of it can be read."""
    context.set_alpn_protocols(_HTTP)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
