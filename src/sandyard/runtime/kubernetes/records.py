"""The records of a run in its Secret, where every server finds them."""

import asyncio
import base64
import json
import time
import zlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from secrets import token_hex
from typing import Any, TypeVar

from sandyard.kit.errors import InvalidError
from sandyard.runtime.errors import (
    AttemptEndedError,
    RecordBrokenError,
    RunNotFoundError,
    RuntimeUnavailableError,
)
from sandyard.runtime.kubernetes import manifest
from sandyard.runtime.kubernetes.api import ConflictError, KubernetesApi, Object
from sandyard.runtime.kubernetes.informer import Informer
from sandyard.runtime.model import Ended, Kind, Log, RunId
from sandyard.runtime.network_model import EgressReport, Network, read_report
from sandyard.runtime.records.recorded_run import RunRecord, to_record

T = TypeVar("T")
_STOP, _LOG, _POD, _TAKEN = "stop", "log", "pod", "taken"
_OF_CALLS = frozenset({_TAKEN, "lock", "start-lock"})
_LOG_BYTES = 512 << 10
"""What is kept of the log of a run that has ended, compressed."""
_LOCK_SEC, _RENEW_SEC = 20.0, 5.0
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class MachineRecord:
    """A machine that is being made, or exists."""

    created_at: float
    deadline_at: float
    network: Network
    has_root: bool = False
    """Whether its Pod is in the namespace of those that have."""


class KubernetesRecords:
    """`RunRecords` of a cluster."""

    def __init__(
        self, api: KubernetesApi, secrets: Informer, of_root: KubernetesApi | None = None
    ) -> None:
        self.api = api
        self.secrets = secrets
        self.of_root = of_root
        self.pending: dict[str, dict[str, str]] = {}
        """By name: records that are written with the next durable one."""

    def ending(self) -> Mapping[str, float]:
        """When runs have ended whose files are not yet stored, by their Pods."""
        found = {}
        for each in self.secrets.objects.values():
            if "ending" in (each.get("data") or {}):
                record = self.of(manifest.run_id_of(each))
                if (ended := record.ended(final=False)) is not None:
                    found[record.pod] = ended.ended_at
        return found

    async def run_ids(self, kind: Kind) -> Sequence[RunId]:
        await self.secrets.synced()
        found = map(manifest.run_id_of, self.secrets.objects.values())
        return sorted((each for each in found if each.kind == kind), key=str)

    def of(self, run_id: RunId) -> "KubernetesRunRecord":
        return KubernetesRunRecord(self, run_id)


class KubernetesRunRecord(RunRecord):
    def __init__(self, records: KubernetesRecords, run_id: RunId) -> None:
        self.run_id = run_id
        self.name = manifest.name_of(run_id)
        self._records = records

    def read(self, name: str, parse: Callable[[dict[str, Any]], T]) -> T | None:
        encoded = self.data().get(name)
        try:
            return None if encoded is None else parse(json.loads(base64.b64decode(encoded)))
        except (ValueError, KeyError, TypeError, InvalidError) as error:
            raise RecordBrokenError(reason=f"{name} in Secret {self.name}: {error!r}") from error

    def text(self, name: str) -> str | None:
        encoded = self.data().get(name)
        return None if encoded is None else base64.b64decode(encoded).decode()

    @property
    def pod(self) -> str:
        """The name of its Pod: another's, if that was handed over."""
        return self.text(_POD) or self.name

    def exists(self) -> bool:
        return self.name in self._records.secrets.objects

    async def put(self, name: str, record: dict[str, Any], *, durable: bool = True) -> None:
        pending = self._records.pending.setdefault(self.name, {})
        pending[name] = _encoded(json.dumps(record).encode())
        if durable:
            await self.flush()

    async def put_all(self, records: Mapping[str, str]) -> None:
        pending = self._records.pending.setdefault(self.name, {})
        pending |= {name: _encoded(text.encode()) for name, text in records.items()}
        await self.flush()

    async def put_keys(self, keys: Mapping[str, str], *, has_root: bool) -> None:
        """Where its Pod can have them too."""
        await self.put_all(keys)
        if has_root and (api := self._records.of_root) is not None:
            data = {name: _encoded(text.encode()) for name, text in keys.items()}
            await api.create("secrets", manifest.secret(self.run_id, data))

    async def remove_keys(self) -> None:
        machine, api = self.machine(), self._records.of_root
        if machine is None or not machine.has_root or api is None:
            return
        if (found := await api.get("secrets", self.pod)) is not None:
            await api.delete("secrets", self.pod, uid=found["metadata"]["uid"])

    def taken_at(self) -> float | None:
        return self.read(_TAKEN, lambda found: float(found["at"]))

    def taken_for(self) -> str:
        return self.read(_TAKEN, lambda found: str(found["to"])) or ""

    async def take(self, to: str) -> bool:
        """Whether the caller gets it: of concurrent callers, only one does."""
        taken = _encoded(json.dumps({"at": time.time(), "to": to}).encode())
        for _ in range(_ATTEMPTS):
            found = await self._records.secrets.fresh(self.name)
            if found is None or self.taken_at() is not None:
                return False
            with suppress(ConflictError):
                version = found["metadata"]["resourceVersion"]
                return await self._patch({_TAKEN: taken}, version=version) is not None
        return False

    async def take_over(
        self, other: "KubernetesRunRecord", records: Mapping[str, dict[str, Any]]
    ) -> None:
        """Make this run that of the other's machine, with these records. Raises
        AttemptEndedError."""
        data = {name: each for name, each in other.data().items() if name not in _OF_CALLS}
        data |= {name: _encoded(json.dumps(each).encode()) for name, each in records.items()}
        data[_POD] = _encoded(other.pod.encode())
        try:
            found = await self._records.api.create("secrets", manifest.secret(self.run_id, data))
        except ConflictError as error:
            raise AttemptEndedError from error
        self._records.secrets.note(found)

    def machine(self) -> MachineRecord | None:
        return self.read("machine", lambda found: MachineRecord(**found))

    async def put_machine(self, machine: MachineRecord, *, durable: bool = True) -> None:
        await self.put("machine", asdict(machine), durable=durable)

    def egress(self, network: Network) -> dict[str, EgressReport]:
        """What each egress proxy reported last, by the proxy's id."""

        def parsed(found: dict[str, Any]) -> dict[str, EgressReport]:
            return {proxy: read_report(each, network) for proxy, each in found.items()}

        return self.read("egress", parsed) or {}

    async def put_egress(self, reports: Mapping[str, EgressReport]) -> None:
        found = {proxy: asdict(each) for proxy, each in reports.items()}
        await self.put("egress", found, durable=False)

    async def put_stop(self) -> None:
        await self.put(_STOP, {})

    def stop_is_requested(self) -> bool:
        return _STOP in self.data()

    async def put_ended(self, ended: Ended, *, final: bool = True) -> None:
        """The end; not final while its files are still being stored."""
        await self.put("ended" if final else "ending", to_record(asdict(ended)))

    async def put_log(self, log: Log) -> None:
        content = log.content[-_LOG_BYTES:]
        begins_at = log.begins_at + len(log.content) - len(content)
        stored = begins_at.to_bytes(8, "big") + zlib.compress(content)
        self._records.pending.setdefault(self.name, {})[_LOG] = _encoded(stored)

    def log(self, begin: int | None) -> Log | None:
        """The saved log, from this byte on."""
        if (encoded := self.data().get(_LOG)) is None:
            return None
        stored = base64.b64decode(encoded)
        begins_at, content = int.from_bytes(stored[:8], "big"), zlib.decompress(stored[8:])
        skipped = max(0, (begin or 0) - begins_at)
        return Log(begins_at + skipped, content[skipped:])

    async def flush(self) -> None:
        """Write what is pending. Raises RunNotFoundError."""
        if not (pending := self._records.pending.get(self.name)):
            return
        written = dict(pending)
        if await self._patch(written) is None:
            raise RunNotFoundError
        for name, value in written.items():
            if pending.get(name) == value:
                del pending[name]

    async def make(self, records: Mapping[str, str] | None = None) -> bool:
        """Whether there was none yet: of concurrent callers, one makes it."""
        data = {name: _encoded(text.encode()) for name, text in (records or {}).items()}
        try:
            found = await self._records.api.create("secrets", manifest.secret(self.run_id, data))
        except ConflictError:
            await self._records.secrets.fresh(self.name)
            return False
        self._records.secrets.note(found)
        return True

    async def remove(self) -> None:
        if (found := await self._records.secrets.fresh(self.name)) is not None:
            await self._records.api.delete("secrets", self.name, uid=found["metadata"]["uid"])
            await self._records.secrets.fresh(self.name)
        self._records.pending.pop(self.name, None)

    @asynccontextmanager
    async def start_lock(self) -> AsyncIterator[bool]:
        await self._records.secrets.get(self.name)
        async with self.lock("start-lock") as is_ours:
            yield is_ours

    @asynccontextmanager
    async def lock(self, name: str = "lock") -> AsyncIterator[bool]:
        """Whether it is ours; if not, another call or server has it. One that is not renewed, as
        its server is gone, is taken over."""
        holder = token_hex(8)
        if not await self._acquire(name, holder):
            yield False
            return
        renewing = asyncio.create_task(self._renew(name, holder))
        try:
            yield True
        finally:
            renewing.cancel()
            with suppress(asyncio.CancelledError):
                await renewing
            with suppress(RuntimeUnavailableError):  # then it expires
                pending = self._records.pending.pop(self.name, {})
                await self._patch({**pending, name: None})

    def is_locked(self, name: str = "lock") -> bool:
        expires_at = self.read(name, lambda found: float(found["expires_at"]))
        return expires_at is not None and time.time() < expires_at

    async def _acquire(self, name: str, holder: str) -> bool:
        if not self.exists() and await self.make({name: _lock(holder)}):
            return True
        for _ in range(_ATTEMPTS):
            if (found := self._records.secrets.objects.get(self.name)) is None:
                return await self.make({name: _lock(holder)})
            if self.is_locked(name):
                return False
            version = found["metadata"]["resourceVersion"]
            with suppress(ConflictError):
                encoded = _encoded(_lock(holder).encode())
                return await self._patch({name: encoded}, version=version) is not None
            await self._records.secrets.fresh(self.name)
        return False

    async def _renew(self, name: str, holder: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_SEC)
            with suppress(RuntimeUnavailableError):
                await self._patch({name: _encoded(_lock(holder).encode())})

    async def _patch(
        self, data: Mapping[str, str | None], *, version: str | None = None
    ) -> Object | None:
        patch: dict[str, Any] = {"data": dict(data)}
        if version is not None:
            patch["metadata"] = {"resourceVersion": version}
        found = await self._records.api.patch("secrets", self.name, patch)
        if found is not None:
            self._records.secrets.note(found)
        return found

    def data(self) -> Mapping[str, str]:
        stored = self._records.secrets.objects.get(self.name, {}).get("data") or {}
        return {**stored, **self._records.pending.get(self.name, {})}


def _lock(holder: str) -> str:
    return json.dumps({"holder": holder, "expires_at": time.time() + _LOCK_SEC})


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
