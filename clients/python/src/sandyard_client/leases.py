"""A lease of a pooled sandbox: `with Lease.acquire(track="…", wait=60) as lease:`."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from sandyard_client import lease_flows as flows
from sandyard_client.client import AsyncClient, Client
from sandyard_client.errors import LeaseLostError, SandyardClientError
from sandyard_client.lease_flows import LeaseState, LeaseWish, Waiting

logger = logging.getLogger("sandyard_client")

OnLost = Callable[[SandyardClientError], object]


class _Held:
    """Shared by the sync and async classes: the properties of the lease."""

    def __init__(self, wish: LeaseWish, state: LeaseState, on_lost: OnLost | None) -> None:
        self._wish = wish
        self._state = state
        self._on_lost = on_lost
        self.lost: SandyardClientError | None = None
        """Why the background renewal ended, if it failed."""
        self.is_released = False

    @property
    def track(self) -> str:
        return self._wish.track

    @property
    def sandbox_id(self) -> str:
        return self._state.lease.sandbox_id

    @property
    def name(self) -> str:
        return self._state.lease.name

    @property
    def external_id(self) -> str:
        return self._state.lease.external_id

    @property
    def allocated_at(self) -> datetime:
        return datetime.fromtimestamp(self._state.lease.allocated_at, UTC)

    @property
    def expires_at(self) -> datetime:
        return datetime.fromtimestamp(self._state.lease.expires_at, UTC)

    def __repr__(self) -> str:
        ends = "released" if self.is_released else f"until {self.expires_at:%Y-%m-%d %H:%M:%SZ}"
        return f"<Lease of {self.name!r} {self.sandbox_id} by {self.track!r} {ends}>"

    def as_json(self) -> dict[str, Any]:
        """As last reported by the server."""
        return asdict(self._state.lease)

    def check(self) -> None:
        """LeaseLostError if the background renewal found that the lease has ended."""
        if self.lost is not None:
            raise LeaseLostError(str(self.lost)) from self.lost

    def _learn(self, state: LeaseState) -> None:
        self._state = state

    def _lose(self, error: SandyardClientError) -> None:
        logger.warning("the lease of %s is not renewed any more: %s", self.sandbox_id, error)
        self.lost = error
        if self._on_lost is not None:
            self._on_lost(error)


class Lease(_Held):
    """Held until `release` or the end of the `with` block. Threads may share it."""

    def __init__(
        self,
        client: Client,
        wish: LeaseWish,
        state: LeaseState,
        *,
        owns_client: bool,
        renew_minutes: int | None,
        on_lost: OnLost | None,
    ) -> None:
        super().__init__(wish, state, on_lost)
        self._client = client
        self._owns_client = owns_client
        self._stopping = threading.Event()
        self._renewing: threading.Thread | None = None
        if renew_minutes is not None:
            self._start_renewing(renew_minutes)

    @classmethod
    def acquire(
        cls,
        *,
        track: str,
        client: Client | None = None,
        wait: float = 0,
        key: str | None = None,
        name_prefix: str | None = None,
        minutes: int | None = None,
        label: str | None = None,
        urgency: int | None = None,
        renew_minutes: int | None = None,
        on_wait: Waiting | None = None,
        on_lost: OnLost | None = None,
    ) -> Self:
        """Lease one sandbox for this track and key (default: the track itself); returns the
        existing lease if they have one. `wait` is how many seconds to wait in the queue; `on_wait`
        is called with the position. With `renew_minutes` the end is kept that far ahead in the
        background.

        NoSandboxesAvailableError if none was free in time. However it fails, it leaves no lease
        behind that the server would report.
        """
        wish = LeaseWish(track, key, name_prefix, minutes, label, urgency)
        used = client or Client()
        try:
            state = used.run(flows.take(used.calls, wish, wait_sec=wait, on_wait=on_wait))
        except BaseException:
            if client is None:
                used.close()
            raise
        return cls(
            used,
            wish,
            state,
            owns_client=client is None,
            renew_minutes=renew_minutes,
            on_lost=on_lost,
        )

    def extend(self, minutes: int) -> None:
        """Extend the lease by `minutes`; LeaseLostError if it has ended."""
        calls = self._client.calls
        self._learn(self._client.run(flows.extend(calls, self.track, self.sandbox_id, minutes)))

    def replace(self, reason: str) -> None:
        """Replace a broken sandbox with another one for the rest of the lease."""
        flow = flows.replace_sandbox(self._client.calls, self.track, self.sandbox_id, reason)
        self._learn(self._client.run(flow))

    def release(self) -> None:
        """Release the sandbox. May be called again: after a success it does nothing."""
        if self.is_released:
            return
        self._stop_renewing()
        self._client.run(flows.give_up(self._client.calls, self.track, self.sandbox_id))
        self.is_released = True
        self._close()

    def _close(self) -> None:
        if self._owns_client:
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except SandyardClientError as failure:
            if error is None:
                raise
            error.add_note(f"The lease of {self.sandbox_id} was not given up: {failure}")
        finally:
            self._close()

    def _start_renewing(self, minutes: int) -> None:
        self._renewing = threading.Thread(
            target=self._renew, args=(minutes,), name=f"renew {self.sandbox_id}", daemon=True
        )
        self._renewing.start()

    def _renew(self, minutes: int) -> None:
        flow = flows.renew(
            self._client.calls, self.track, lambda: self._state, minutes, self._learn
        )
        try:
            self._client.run_until(flow, self._stopping)
        except SandyardClientError as error:
            self._lose(error)

    def _stop_renewing(self) -> None:
        self._stopping.set()
        if self._renewing is not None and self._renewing is not threading.current_thread():
            self._renewing.join()


class AsyncLease(_Held):
    """The same for asyncio: `async with AsyncLease.acquire(…) as lease:`, or `await` it."""

    def __init__(
        self,
        client: AsyncClient,
        wish: LeaseWish,
        state: LeaseState,
        *,
        owns_client: bool,
        renew_minutes: int | None,
        on_lost: OnLost | None,
    ) -> None:
        super().__init__(wish, state, on_lost)
        self._client = client
        self._owns_client = owns_client
        self._renewing: asyncio.Task[None] | None = None
        if renew_minutes is not None:
            self._renewing = asyncio.create_task(self._renew(renew_minutes))

    @classmethod
    def acquire(
        cls,
        *,
        track: str,
        client: AsyncClient | None = None,
        wait: float = 0,
        key: str | None = None,
        name_prefix: str | None = None,
        minutes: int | None = None,
        label: str | None = None,
        urgency: int | None = None,
        renew_minutes: int | None = None,
        on_wait: Waiting | None = None,
        on_lost: OnLost | None = None,
    ) -> "AsyncAcquisition":
        """Like `Lease.acquire`; nothing is sent until it is entered or awaited."""
        wish = LeaseWish(track, key, name_prefix, minutes, label, urgency)
        return AsyncAcquisition(wish, wait, renew_minutes, client, on_wait, on_lost)

    async def extend(self, minutes: int) -> None:
        """Extend the lease by `minutes`; LeaseLostError if it has ended."""
        flow = flows.extend(self._client.calls, self.track, self.sandbox_id, minutes)
        self._learn(await self._client.run(flow))

    async def replace(self, reason: str) -> None:
        """Replace a broken sandbox with another one for the rest of the lease."""
        flow = flows.replace_sandbox(self._client.calls, self.track, self.sandbox_id, reason)
        self._learn(await self._client.run(flow))

    async def release(self) -> None:
        """Release the sandbox, even if the task is cancelled meanwhile."""
        if not self.is_released:
            await _to_its_end(self._release())

    async def _release(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        await self._client.run(flows.give_up(self._client.calls, self.track, self.sandbox_id))
        self.is_released = True
        await self.close()

    async def close(self) -> None:
        """Close the connections if the lease owns them; the lease itself is not released."""
        if self._owns_client:
            await self._client.close()

    async def _renew(self, minutes: int) -> None:
        flow = flows.renew(
            self._client.calls, self.track, lambda: self._state, minutes, self._learn
        )
        try:
            await self._client.run(flow)
        except SandyardClientError as error:
            self._lose(error)


class AsyncAcquisition:
    """A lease that is acquired when awaited or entered."""

    def __init__(
        self,
        wish: LeaseWish,
        wait: float,
        renew_minutes: int | None,
        client: AsyncClient | None,
        on_wait: Waiting | None,
        on_lost: OnLost | None,
    ) -> None:
        self._wish = wish
        self._wait = wait
        self._renew_minutes = renew_minutes
        self._client = client
        self._on_wait = on_wait
        self._on_lost = on_lost
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        return self._take().__await__()

    async def _take(self) -> AsyncLease:
        used = self._client or AsyncClient()
        owns = self._client is None
        try:
            state = await self._taken(used)
        except BaseException:
            if owns:
                await used.close()
            raise
        return AsyncLease(
            used,
            self._wish,
            state,
            owns_client=owns,
            renew_minutes=self._renew_minutes,
            on_lost=self._on_lost,
        )

    async def _taken(self, used: AsyncClient) -> LeaseState:
        """However often its task is cancelled, it ends only when there is no lease."""
        flow = flows.take(used.calls, self._wish, wait_sec=self._wait, on_wait=self._on_wait)
        taking = asyncio.ensure_future(used.run(flow))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.cancel()
            await _ended(taking)
            if not taking.cancelled() and taking.exception() is None:
                sandbox_id = taking.result().lease.sandbox_id
                give_up = flows.give_up(used.calls, self._wish.track, sandbox_id)
                await _ended(asyncio.ensure_future(used.run(give_up)))
            raise

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self._take()
        return self._lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._lease is not None  # noqa: S101 - it was entered
        try:
            await self._lease.release()
        except SandyardClientError as failure:
            if error is None:
                raise
            error.add_note(f"The lease of {self._lease.sandbox_id} was not given up: {failure}")
        finally:
            await self._lease.close()


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish it even if the task is cancelled; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await _ended(task)
        task.result()
        raise


async def _ended(task: asyncio.Future[Any]) -> None:
    """Wait for it, however often the waiting task is cancelled."""
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({task})
