"""Endpoints that run once for each `Idempotency-Key`, and repeat their first answer."""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive

from sandyard.kit import idempotency, ids
from sandyard.kit.clock import Clock
from sandyard.kit.errors import RateLimitedError, SandyardError, UnavailableError
from sandyard.kit.http.error_statuses import status_of
from sandyard.kit.http.security import values_of
from sandyard.kit.idempotency import Record, RecordStore, RepeatableCall, Step

PARAMETER = {
    "name": idempotency.HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": idempotency.KEY_FORM},
    "description": "Your own name for this call: repeated with the same key within 24 hours, it "
    "has no second effect and gets the first answer",
}
REPLAYED = "Idempotency-Replayed"
"""The header of an answer that was given before."""
_KEY = re.compile(idempotency.KEY_FORM.encode())
_FIRST_PAUSE_SEC, _LONGEST_PAUSE_SEC = 0.02, 0.5
_INTERNAL_ERROR = 500
_MOST_STORED_BYTES = 1 << 20
"""Of an answer; to encrypt one takes several times as much memory."""

Answering = Callable[[Request], Awaitable[Response]]


class Cipher(Protocol):
    def encrypt(self, value: str, /) -> str: ...
    def decrypt(self, encrypted: str, /) -> str: ...


class Budget(Protocol):
    async def count(self, scope: str, cost: int, /) -> None:
        """RateLimitedError if it is used up."""


@dataclass(frozen=True, slots=True)
class IdempotentCalls:
    """`cipher` encrypts the answers, which may hold secrets. `stored` counts the kilobytes of long
    ones. A repeat waits `wait_sec` for a first call that is still running."""

    records: RecordStore
    cipher: Cipher
    clock: Clock
    stored: Budget
    wait_sec: float = 60

    async def answer(
        self,
        request: Request,
        answering: Answering,
        *,
        scope: str,
        operation: str,
        finds_made: bool = True,
        refusals: tuple[type[Exception], ...] = (HTTPException,),
    ) -> Response:
        """The answer of the first call in this scope with the request's key. A call that was
        interrupted is run again if it `finds_made` what it has made before; if not, a repeat
        raises OutcomeUnknownError. After one of the `refusals`, or an error of the caller, the key
        can be used again. Raises InvalidIdempotencyKeyError, IdempotencyKeyReusedError,
        AnswerNotStoredError, FirstCallRunsError."""
        key = key_of(request)
        if key is None:
            return await answering(request)
        body = await request.body()
        sent = f"{request.scope['path']}?{request.scope['query_string'].decode('latin-1')}\n"
        now = self.clock.now()
        wanted = Record(
            record_id=idempotency.record_id(scope, operation, key),
            request_hash=hashlib.sha256(sent.encode() + body).hexdigest(),
            content=self.cipher.encrypt(secrets.token_hex(32)),
            holder=ids.holder_id(),
            held_until=now + idempotency.HELD_SEC,
            expires_at=now + idempotency.LASTS_SEC,
        )
        record = await self._begin(wanted, finds_made=finds_made)
        if record.status is not None:
            return self._replayed(record)
        call = RepeatableCall(self.cipher.decrypt(record.content), record != wanted)
        again = Request(request.scope, _replaying(body, request.receive))
        async with self._holding(record, () if call.is_repeat else refusals):
            with idempotency.running(call):
                response = await answering(again)
        await self._conclude(record, response, scope)
        return response

    async def _begin(self, wanted: Record, *, finds_made: bool) -> Record:
        """`wanted`, if this is the first call; an interrupted one's record, now held by this call;
        or one with an answer."""
        pauses = self._pauses()
        while True:
            found = await self.records.find(wanted.record_id)
            if found is None:
                if await self.records.add(wanted):
                    return wanted
                continue
            now, hashed = self.clock.now(), wanted.request_hash
            step = idempotency.next_step(found, hashed, now, finds_made=finds_made)
            if step is Step.ANSWER:
                return found
            if step is Step.FORGET:
                await self.records.replace(found, None)
            if step is Step.WAIT:
                await anext(pauses)
            if step is Step.RUN:
                mine = found.held(wanted.holder, now + idempotency.HELD_SEC)
                if await self.records.replace(found, mine):
                    return mine

    async def _pauses(self) -> AsyncIterator[None]:
        """Longer and longer ones; FirstCallRunsError after `wait_sec`."""
        loop, pause_sec = asyncio.get_running_loop(), _FIRST_PAUSE_SEC
        gives_up_at = loop.time() + self.wait_sec
        while loop.time() < gives_up_at:
            await asyncio.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)
            yield
        raise idempotency.FirstCallRunsError(retry_after=1)

    @asynccontextmanager
    async def _holding(
        self, record: Record, refusals: tuple[type[Exception], ...]
    ) -> AsyncIterator[None]:
        """Renews the record while the call runs. A refused first call is forgotten: it made
        nothing."""
        renewing = asyncio.create_task(self._renew(record))
        try:
            yield
        except BaseException as error:
            is_over = refusals and (isinstance(error, refusals) or _is_refusal(error))
            ended = None if is_over else record.held(record.holder, 0)
            await asyncio.shield(self._write(record, ended))
            raise
        finally:
            renewing.cancel()

    async def _renew(self, record: Record) -> None:
        while True:
            await asyncio.sleep(idempotency.HELD_SEC / 3)
            held = record.held(record.holder, self.clock.now() + idempotency.HELD_SEC)
            await self._write(record, held)

    async def _conclude(self, record: Record, response: Response, scope: str) -> None:
        body, content = bytes(response.body), ""
        if len(body) <= _MOST_STORED_BYTES and await self._may_store(scope, len(body) // 1024):
            content = self.cipher.encrypt(json.dumps([response.media_type, body.decode()]))
        answered = record.answered(response.status_code, content)
        await asyncio.shield(self._write(record, answered))

    async def _may_store(self, scope: str, kilobytes: int) -> bool:
        try:
            if kilobytes:
                await self.stored.count(scope, kilobytes)
        except RateLimitedError:
            return False
        return True

    async def _write(self, before: Record, after: Record | None) -> None:
        """If the engine is away, a repeat finds the record as it was, and what the call made."""
        with suppress(UnavailableError):
            await self.records.replace(before, after)

    def _replayed(self, record: Record) -> Response:
        if not record.content:
            raise idempotency.AnswerNotStoredError(details={"status": record.status})
        media_type, body = json.loads(self.cipher.decrypt(record.content))
        headers = {REPLAYED: "true"}
        return Response(body, record.status or 200, headers, media_type)


def key_of(request: Request) -> str | None:
    values = values_of(request.scope["headers"], idempotency.HEADER.lower().encode())
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        raise idempotency.InvalidIdempotencyKeyError(details={"header": idempotency.HEADER.lower()})
    return values[0].decode()


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, SandyardError) and status_of(error) < _INTERNAL_ERROR


def _replaying(body: bytes, receive: Receive) -> Receive:
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replaying() -> Message:
        return messages.pop() if messages else await receive()

    return replaying
