"""A device that sends readings: `Device(…).send([{"sensors": {"temp_c": 21.5}}])`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar
from uuid import uuid4

from sandyard_client import device_flows as flows
from sandyard_client.calls import Calls
from sandyard_client.client import AsyncClient, Client
from sandyard_client.device_flows import Delivery, DeviceIdentity
from sandyard_client.models import RegisteredAnswer
from sandyard_client.reading_buffer import Reading, ReadingBuffer, Rejection

_PATIENCE_SEC = 10.0
"""For one request of a device: its readings are safe in the buffer."""


_Client = TypeVar("_Client", Client, AsyncClient)


class _Buffered(Generic[_Client]):
    """Shared by the sync and async classes: the device's identity, its buffer and its client."""

    _client_class: type[_Client]

    def __init__(
        self,
        hardware_id: str,
        *,
        firmware_version: str,
        buffer: Path | str,
        client: _Client | None = None,
        boot_id: str | None = None,
        capabilities: Mapping[str, Any] | None = None,
        friendly_name: str | None = None,
    ) -> None:
        boot = boot_id or str(uuid4())
        self.identity = DeviceIdentity(
            hardware_id, boot, firmware_version, capabilities, friendly_name
        )
        self._buffer = ReadingBuffer(Path(buffer))
        self._owns_client = client is None
        self._client: _Client = client or self._client_class()

    @property
    def waiting(self) -> int:
        """The number of readings in the buffer."""
        return len(self._buffer)

    def rejections(self) -> list[Rejection]:
        """Readings that the server rejected permanently, stored until they are forgotten."""
        return self._buffer.rejections()

    def forget_rejections(self) -> None:
        self._buffer.forget_rejections()

    @staticmethod
    def _brief(calls: Calls) -> Calls:
        return calls.within(min(_PATIENCE_SEC, calls.policy.within_sec))


class Device(_Buffered[Client]):
    """The buffer is a file of the device; waiting readings survive a restart. Close it, or use it
    in a `with` block."""

    _client_class = Client

    def register(self) -> RegisteredAnswer:
        return self._client.run(flows.register(self._client.calls, self.identity))

    def send(self, readings: Sequence[Reading] = ()) -> Delivery:
        """Write the readings to the buffer and send all waiting ones. A reading has `sensors`, and
        may have `timestamp_ms` (default: now), `sensor_status` and `batch_id`. ValueError for one
        that could never be sent; BufferFullError if the disk is full and the server unavailable."""
        calls = self._brief(self._client.calls)
        return self._client.run(flows.deliver(calls, self.identity, self._buffer, readings))

    def close(self) -> None:
        self._buffer.close()
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
        self.close()


class AsyncDevice(_Buffered[AsyncClient]):
    """The same for asyncio."""

    _client_class = AsyncClient

    async def register(self) -> RegisteredAnswer:
        return await self._client.run(flows.register(self._client.calls, self.identity))

    async def send(self, readings: Sequence[Reading] = ()) -> Delivery:
        calls = self._brief(self._client.calls)
        return await self._client.run(flows.deliver(calls, self.identity, self._buffer, readings))

    async def close(self) -> None:
        self._buffer.close()
        if self._owns_client:
            await self._client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self.close()
