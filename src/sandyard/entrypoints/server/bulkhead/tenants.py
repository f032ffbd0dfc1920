"""The tenants' process as the main process sees it, and the requests that go there."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.entrypoints.http.middleware import InFlight
from sandyard.entrypoints.http.other_parts import note_away
from sandyard.entrypoints.server.bulkhead import channel
from sandyard.entrypoints.server.bulkhead.calls import Answerer, Caller, ProcessAwayError
from sandyard.entrypoints.server.bulkhead.frames import Connection
from sandyard.entrypoints.server.bulkhead.keeper import Keeper
from sandyard.kit.wired import wired

logger = logging.getLogger(__name__)

_STOP_SEC = 5.0
_HAND_OVER_SEC = 10.0
"""So long a request waits for a place in the channel, which has some hundred. It fills up when that
process is stalled; without an end, requests whose clients have left would pile up here."""


@wired
class TenantsProcess:
    """`on_end` is called if it ends without being told to: it could not start, or its keeper was
    killed."""

    keeper: Keeper
    on_end: Callable[[], None]
    hand_over_sec: float = _HAND_OVER_SEC

    def __post_init__(self) -> None:
        self._channel = channel.Channel(self.keeper.end)
        self._is_down = False
        self._is_stopping = self._has_ended = False
        self.is_up = asyncio.Event()
        """Set when it has started for the first time."""
        self.exit_code = 0
        self.caller = Caller(self._connect)
        """Passes a request on to it."""

    def listen(self, api: ASGIApp) -> None:
        """From now on it may call the main process's API."""
        self._channel.listen(on_call=Answerer(api, api).accept, on_word=self._note)

    async def _connect(self) -> Connection:
        """A process that is still starting answers when it has started."""
        if self._is_down:
            raise ProcessAwayError(retry_after=1)
        try:
            async with asyncio.timeout(self.hand_over_sec):
                return await self._channel.connect()
        except OSError as error:  # also TimeoutError
            raise ProcessAwayError(retry_after=1) from error

    def _note(self, word: bytes) -> None:
        if word == channel.UP:
            self._is_down = False
            self.is_up.set()
        elif word == channel.DOWN:
            self._is_down = True
        elif word == channel.ENDED and not self._is_stopping:
            self._is_down = self._has_ended = True
            code = self.keeper.wait()
            if code < 0:
                logger.error("the keeper of the tenants' process was killed: the server stops")
            self.exit_code = 1 if code < 0 else code
            self.on_end()

    def hang_up(self) -> None:
        """Have it reread its secrets."""
        self._channel.tell_now(channel.HANG_UP)

    async def drain(self) -> None:
        """Have it answer what waits, and end streams."""
        self._is_stopping = True
        await self._tell(channel.DRAIN)

    async def _tell(self, word: bytes) -> None:
        with suppress(OSError):  # it has already ended
            await self._channel.tell(word)

    async def stop(self) -> None:
        """End it; call this when no request can reach it any more."""
        if self._has_ended:
            return
        self._is_stopping = True
        await self._tell(channel.STOP)
        try:
            async with asyncio.timeout(_STOP_SEC):
                await asyncio.to_thread(self.keeper.wait)
        except TimeoutError:
            os.kill(self.keeper.pid, signal.SIGKILL)


@wired
class Bulkhead:
    """The application of the port: requests for the tenants' process are passed on, all others are
    answered here."""

    own: ASGIApp
    tenants: ASGIApp
    is_own: Callable[[Scope], bool]
    in_flight: InFlight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.is_own(scope):
            await self.own(scope, receive, send)
            return
        try:
            await self._pass_on(scope, receive, send)
        except ProcessAwayError as error:
            note_away(scope, error)
            await self.own(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            with self.in_flight.websockets.opened(scope, receive, send) as socket:
                await self.tenants(scope, socket.receive, socket.send)
            return
        self.in_flight.count += 1
        try:
            await self.tenants(scope, receive, send)
        finally:
            self.in_flight.count -= 1
