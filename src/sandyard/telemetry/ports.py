"""The store of Telemetry. Every method raises UnavailableError if it is unavailable."""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Protocol

from sandyard.kit.changes.transitions import Transition
from sandyard.kit.paging import Page
from sandyard.telemetry.model import (
    ApiKey,
    Bucket,
    Device,
    DeviceOrder,
    Marker,
    Reading,
    SensorValue,
    Stored,
    TimeRange,
)


class TelemetryStore(Protocol):
    """Devices and their readings."""

    async def find_devices(self, hardware_ids: Collection[str]) -> Mapping[str, Device]:
        """The registered ones of these devices, by hardware id."""

    async def insert_readings(
        self, readings: Sequence[Reading], *, devices: Mapping[str, Device], now_ms: int
    ) -> Mapping[str, Stored]:
        """Store each reading whose batch id is new, and return what is stored under each id.

        The batch ids differ; `devices` are the senders, as just read. A reading and its marker are
        written together or not at all, each on condition that it does not exist, so exactly one of
        any number of callers gets `is_new`. The devices were seen at `now_ms`; `last_seen_at` never
        decreases. After UnavailableError some may be stored; sending all again finds them.
        """

    async def apply(self, transition: Transition[Device]) -> bool:
        """Write the change and its events, if the device still has the sequence that the change was
        decided from; otherwise write nothing and return False. Does not change `last_seen_at`."""

    async def mark_seen(self, hardware_id: str, *, seen_at: int) -> None:
        """Record that the device was seen; `last_seen_at` never decreases."""

    async def page_of_devices(
        self,
        *,
        order: DeviceOrder = DeviceOrder.LAST_SEEN,
        search: str | None = None,
        limit: int,
        cursor: str | None,
    ) -> Page[Device]:
        """Most recently seen first, or longest silent first; slightly outdated. `search` is a part
        of the name or hardware id, in any letter case. A cursor is valid only for its own order."""

    async def page_of_readings(
        self, hardware_id: str, within: TimeRange, *, limit: int, cursor: str | None
    ) -> Page[Reading]:
        """Newest first, by their timestamps. Readings that arrive meanwhile do not shift the pages:
        each existing one is listed once."""

    def readings(self, hardware_id: str, within: TimeRange) -> AsyncIterator[Sequence[Reading]]:
        """All of them, oldest first, in portions of bounded size."""

    async def series(
        self, hardware_id: str, metric: str, within: TimeRange, *, bucket_ms: int
    ) -> Sequence[Bucket]:
        """The non-empty buckets, ordered by time; they start at multiples of their length. Readings
        without the metric do not count."""

    async def remove_readings(self, hardware_id: str, *, limit: int) -> int:
        """Remove up to `limit` of the device's readings, oldest first, with their markers; returns
        how many. After UnavailableError some may be removed."""

    async def sensors(self, hardware_id: str, within: TimeRange) -> Sequence[SensorValue]:
        """Every sensor of the readings, ordered by name, each with its latest value."""

    def reading_times(
        self, hardware_id: str, metric: str | None, within: TimeRange
    ) -> AsyncIterator[Sequence[int]]:
        """The different times of the readings, of all or of those with this metric, in order and
        in portions of bounded size."""

    def all_readings(self) -> AsyncIterator[Sequence[Reading]]:
        """Those of all devices, in batches. Only for moves, as the next three."""

    def all_markers(self) -> AsyncIterator[Sequence[Marker]]: ...

    async def restore_readings(self, readings: Sequence[Reading]) -> None:
        """Add readings without markers; those that are there stay as they are."""

    async def restore_markers(self, markers: Sequence[Marker]) -> None: ...

    def all_devices(self) -> AsyncIterator[Sequence[Device]]:
        """All of them, in batches. Only for verification."""

    async def check(self) -> None:
        """Return if the engine responds and has the schema that this code needs."""

    async def close(self) -> None: ...


class ExpiredReadings(Protocol):
    """For engines that do not remove expired data themselves."""

    async def devices_with_expired(
        self, *, oldest_ms: int, after: str, limit: int
    ) -> Sequence[str]:
        """Devices with readings from before `oldest_ms`, ordered by id, after this one."""

    async def remove_expired(self, hardware_id: str, *, oldest_ms: int, limit: int) -> int:
        """Remove about `limit` of the device's readings from before `oldest_ms`, oldest first;
        returns how many."""

    async def remove_markers(self, *, now_ms: int, limit: int) -> int:
        """Remove up to `limit` expired markers; returns how many."""


class KeyStore(Protocol):
    """API keys, identified by the hash of key and pepper."""

    async def apply(self, transition: Transition[ApiKey]) -> bool:
        """Write the change and its events, if the key still has the sequence that the change was
        decided from; otherwise write nothing and return False."""

    async def find_key(self, key_id: str) -> ApiKey | None: ...

    async def find_key_by_hash(self, api_key_hash: str) -> ApiKey | None:
        """The key as last written: a consistent read."""

    async def page_of_keys(self, *, limit: int, cursor: str | None) -> Page[ApiKey]:
        """Newest first."""

    async def touch_key(self, key_id: str, *, used_at: int, unless_after: int) -> None:
        """Record that the key was used at `used_at`, unless a use after `unless_after` is
        recorded."""

    def all_keys(self) -> AsyncIterator[Sequence[ApiKey]]:
        """All of them, in batches. Only for verification."""
