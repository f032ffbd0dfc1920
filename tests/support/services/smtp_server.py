"""A mail server that keeps what it is given."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class SmtpServer:
    port: int = 0
    mails: list[bytes] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    refuse: int = 0
    """How many connections are still cut off at once."""
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, whoever connects waits."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self.refuse:
                self.refuse -= 1
                return
            await self.is_open.wait()
            await self._converse(reader, writer)
        finally:
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 ready\r\n")
        while line := (await reader.readline()).decode().strip():
            verb = line.split(" ")[0].upper()
            match verb:
                case "EHLO":
                    writer.write(b"250-here\r\n250 AUTH PLAIN\r\n")
                case "AUTH":
                    self.logins.append(base64.b64decode(line.split(" ")[2]).decode())
                    writer.write(b"235 welcome\r\n")
                case "DATA":
                    writer.write(b"354 go on\r\n")
                    self.mails.append(await reader.readuntil(b"\r\n.\r\n"))
                    writer.write(b"250 kept\r\n")
                case "QUIT":
                    writer.write(b"221 bye\r\n")
                    return
                case _:
                    if verb == "RCPT":
                        self.recipients.append(line)
                    writer.write(b"250 ok\r\n")


@asynccontextmanager
async def smtp_server(*, refuse: int = 0, is_open: bool = True) -> AsyncIterator[SmtpServer]:
    kept = SmtpServer(refuse=refuse)
    if is_open:
        kept.is_open.set()
    server = await asyncio.start_server(kept.serve, "127.0.0.1", 0)
    kept.port = server.sockets[0].getsockname()[1]
    try:
        yield kept
    finally:
        server.close()
