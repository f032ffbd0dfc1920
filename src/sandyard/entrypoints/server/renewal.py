"""Rereads secrets and the certificate of a serving process without a restart."""

import asyncio
import logging
import signal
import sys
import termios
from collections.abc import Awaitable, Callable
from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter

from sandyard.entrypoints.server.listeners import TlsFilesError
from sandyard.kit.wired import wired
from sandyard.settings.secrets import Secrets

logger = logging.getLogger(__name__)


class Terminal:
    """The controlling terminal of the process, if any. Closing it sends the same signal (SIGHUP)
    that asks a server to reread its files."""

    def __init__(self) -> None:
        self._was_there = sys.stdin is not None and sys.stdin.isatty()

    def is_closed(self) -> bool:
        if not self._was_there:
            return False
        try:
            termios.tcgetattr(sys.stdin)
        except (termios.error, OSError, ValueError):
            return True
        return False


@wired
class Renewal:
    """Rereads the secrets every `every_sec`, and everything that can be reread on SIGHUP."""

    secrets: Secrets
    every_sec: float
    registry: CollectorRegistry
    stop_serving: Callable[[], None]
    reload_certificate: Callable[[], Awaitable[None]] | None = None
    tell_others: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._terminal = Terminal()
        self._reads = Counter(
            "sandyard_secret_reads_total",
            "Secrets that were read again",
            ("setting", "outcome"),
            registry=self.registry,
        )
        self._hung_up = asyncio.Event()

    def hang_up(self) -> None:
        if self._terminal.is_closed():
            self.stop_serving()
        if self.tell_others is not None:
            self.tell_others()
        self._hung_up.set()

    async def renew_forever(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.hang_up)
        while True:
            await self._read_secrets()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hung_up.wait(), self.every_sec)
            if self._hung_up.is_set():
                self._hung_up.clear()
                await self._renew_certificate()

    async def _read_secrets(self) -> None:
        for setting, is_read in (await self.secrets.refresh()).items():
            self._reads.labels(setting.upper(), "read" if is_read else "failed").inc()

    async def _renew_certificate(self) -> None:
        if self.reload_certificate is None:
            return
        try:
            await self.reload_certificate()
        except TlsFilesError as error:  # the old one stays in use
            logger.error(  # noqa: TRY400 - one clear line, no traceback
                "the certificate was not reloaded: %s", error.message, extra={"action": "reload"}
            )
        else:
            logger.info("the certificate was reloaded", extra={"action": "reload"})
