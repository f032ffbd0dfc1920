"""Files in an object store: content-addressed, compressed, checked, each stored once."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from sandyard.runtime.model import Snapshot
from sandyard.runtime.records.run_folder import entries, sync_folder
from sandyard.runtime.store import model
from sandyard.runtime.store.errors import (
    ObjectDamagedError,
    StoreUnavailableError,
    StoringError,
)
from sandyard.runtime.store.model import MARKS, OBJECTS, REFERENCES, Kind, Reference
from sandyard.runtime.store.ports import ObjectStore

T = TypeVar("T")
GRACE_SEC = 86_400.0
_THREADS = 8
_PAUSE_SEC = 2.0
"""After a failed upload, others fail at once for this long: each would wait for its timeout."""
_DELETE_SEC = 2.0
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"


class NoLayers:
    """Without a store, files are on this node's disk alone."""

    async def put(
        self, kind: Kind, given_id: str, path: Path, *, timeout_sec: float | None = None
    ) -> None:
        """Return when the file is durable in the store, under this id; nothing if it has it. Raises
        StoreUnavailableError, StoringError if that takes longer: it continues then."""

    async def fetch(self, kind: Kind, given_id: str, to: Path) -> bool:  # noqa: ARG002
        """Write the file to this path, completely or not at all; False if the store has none.
        Raises StoreUnavailableError, ObjectDamagedError."""
        return False

    async def find(self, kind: Kind, given_id: str) -> Snapshot | None:  # noqa: ARG002
        return None

    async def list_all(self, kind: Kind) -> Sequence[Snapshot]:  # noqa: ARG002
        return []

    async def delete(self, kind: Kind, given_id: str) -> None:
        """Drop the reference; the object is deleted later, if no other has it. If the store is
        away, the job that looks for unreferenced files does it."""

    async def collect(self, *, now: float) -> int:  # noqa: ARG002
        """Delete objects without references, and unused copies on this node's disk; returns how
        many objects."""
        return 0


class Layers(NoLayers):
    def __init__(
        self,
        objects: ObjectStore,
        *,
        remembered: Path,
        caches: Mapping[Kind, Path] | None = None,
        grace_sec: float = GRACE_SEC,
    ) -> None:
        """`remembered` is the file that says which store was used before, `caches` are the folders
        on this node's disk, with ids as names."""
        self._objects = objects
        self._remembered = remembered
        self._caches = caches or {}
        self._grace_sec = grace_sec
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
        self._under_way: dict[tuple[str, ...], asyncio.Task[Any]] = {}
        self._paused_until, self._failure = 0.0, ""

    async def put(
        self, kind: Kind, given_id: str, path: Path, *, timeout_sec: float | None = None
    ) -> None:
        key = ("put", kind, given_id)
        storing = self._once(key, partial(self._call, self._put, kind, given_id, path))
        done, _ = await asyncio.wait({storing}, timeout=timeout_sec)
        if not done:
            raise StoringError(f"{path.name} is being uploaded")
        self._under_way.pop(key, None)
        storing.result()

    async def fetch(self, kind: Kind, given_id: str, to: Path) -> bool:
        work = partial(self._call, self._fetch, kind, given_id, to)
        return await asyncio.shield(self._once(("fetch", kind, given_id), work))

    async def find(self, kind: Kind, given_id: str) -> Snapshot | None:
        found = await self._call(self._find, kind, given_id)
        return None if found is None else _snapshot(found)

    async def list_all(self, kind: Kind) -> Sequence[Snapshot]:
        return list(map(_snapshot, await self._call(self._references, f"{REFERENCES}{kind}/")))

    async def delete(self, kind: Kind, given_id: str) -> None:
        self._under_way.pop(("put", kind, given_id), None)
        work = partial(self._call, self._delete, kind, given_id)
        await asyncio.wait({self._once(("delete", kind, given_id), work)}, timeout=_DELETE_SEC)

    async def collect(self, *, now: float) -> int:
        return await self._call(self._collect, now)

    async def _call(self, work: Callable[..., T], *arguments: Any) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, partial(self._opened, work, *arguments))

    def _opened(self, work: Callable[..., T], *arguments: Any) -> T:
        address = self._objects.address
        if not self._remembered.exists() or self._remembered.read_text() != address:
            self._objects.initialise()
            self._remembered.write_text(address)
        return work(*arguments)

    def _once(
        self, key: tuple[str, ...], work: Callable[[], Coroutine[Any, Any, T]]
    ) -> asyncio.Task[T]:
        """Concurrent callers share the work, which continues without them; who comes back for what
        was stored meanwhile finds it done."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(work())
            task.add_done_callback(lambda task: self._forget(key, task))
        return task

    def _forget(self, key: tuple[str, ...], task: asyncio.Task[Any]) -> None:
        has_failed = task.cancelled() or task.exception() is not None
        if has_failed or key[0] != "put":
            self._under_way.pop(key, None)  # the next caller tries again

    def _put(self, kind: Kind, given_id: str, path: Path) -> None:
        if time.monotonic() < self._paused_until:
            raise StoreUnavailableError(self._failure)
        try:
            self._store(kind, given_id, path)
        except StoreUnavailableError as error:
            self._paused_until = time.monotonic() + _PAUSE_SEC
            self._failure = error.reason or ""
            raise

    def _store(self, kind: Kind, given_id: str, path: Path) -> None:
        try:
            size_bytes = path.stat().st_size
            before = self._references(model.references_to(kind, given_id))
            with _compressed(path) as (content, is_compressed):
                found: list[str] = []

                def key_of(sha256: str) -> str | None:
                    if any(each.sha256 == sha256 for each in before):
                        return None
                    name = self._find_object(sha256)
                    new = model.new_object(sha256, token_hex(4), is_compressed=is_compressed)
                    found.append(name or new)
                    return None if name else model.object_key(new)

                self._objects.put_named(content, key_of)
        except OSError as error:
            raise StoreUnavailableError(f"{path}: {error}") from error
        if not found:
            return
        self._objects.put(Reference(kind, given_id, found[0], size_bytes).key)
        for each in before:
            self._objects.delete(each.key)

    def _find_object(self, sha256: str) -> str | None:
        """One that is not about to be deleted. The marks are read first: one that is gone, because
        its object was deleted, must not be taken for one that never was."""
        marked = {model.name_of(each.key) for each in self._objects.list(f"{MARKS}{sha256}.")}
        found = [
            model.name_of(each.key) for each in self._objects.list(model.object_key(f"{sha256}."))
        ]
        return next((name for name in found if name not in marked), None)

    def _fetch(self, kind: Kind, given_id: str, to: Path) -> bool:
        found = self._find(kind, given_id)
        if found is None:
            return False
        draft = to.with_suffix(f".new-{os.urandom(6).hex()}")
        plain = draft.with_name(f"{draft.name}-plain")
        try:
            to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            sha256 = self._objects.get(model.object_key(found.object), draft)
            if sha256 != found.sha256:
                is_wrong = "has another checksum" if sha256 else "is missing"
                raise ObjectDamagedError(reason=f"{found.object} {is_wrong}")
            if found.is_compressed:
                _filter(_decompressor(draft), draft, plain)
                plain.replace(draft)
            _sync(draft)
            draft.replace(to)
            sync_folder(to.parent)
        except OSError as error:
            raise StoreUnavailableError(f"{to}: {error}") from error
        finally:
            draft.unlink(missing_ok=True)
            plain.unlink(missing_ok=True)
        return True

    def _find(self, kind: Kind, given_id: str) -> Reference | None:
        """The latest; a writer may have died between it and the previous one."""
        if not model.is_id(given_id):
            return None
        found = self._references(model.references_to(kind, given_id))
        return max(found, key=lambda each: each.created_at, default=None)

    def _references(self, prefix: str) -> list[Reference]:
        return [model.read_reference(each) for each in self._objects.list(prefix)]

    def _delete(self, kind: Kind, given_id: str) -> None:
        if model.is_id(given_id):
            for each in self._references(model.references_to(kind, given_id)):
                self._objects.delete(each.key)

    def _collect(self, now: float) -> int:
        objects = self._objects
        marked_at = {model.name_of(each.key): each.modified_at for each in objects.list(MARKS)}
        known = [model.name_of(each.key) for each in objects.list(OBJECTS)]
        referenced = [each.object for each in self._references(REFERENCES)]
        garbage = model.find_garbage(
            marked_at, known, referenced, now=now, grace_sec=self._grace_sec
        )
        for name in garbage.to_mark:
            objects.put(f"{MARKS}{name}")
        for name in garbage.to_delete:  # before its mark
            objects.delete(model.object_key(name))
        for name in garbage.to_unmark | garbage.to_delete:
            objects.delete(f"{MARKS}{name}")
        objects.remove_drafts(before_at=now - self._grace_sec)
        for kind, folder in self._caches.items():
            self._evict(kind, folder, unused_since=now - self._grace_sec)
        return len(garbage.to_delete)

    def _evict(self, kind: Kind, folder: Path, *, unused_since: float) -> None:
        """A start notes its use of a file before it reads it."""
        stored = {each.id for each in self._references(f"{REFERENCES}{kind}/")}
        for path in entries(folder):
            if path.name in stored and path.stat().st_mtime < unused_since:
                path.unlink(missing_ok=True)


class ReadOnlyLayers(Layers):
    """For a copy of a data dir: the store is the original's."""

    put, delete, collect = NoLayers.put, NoLayers.delete, NoLayers.collect


def _snapshot(found: Reference) -> Snapshot:
    return Snapshot(found.id, found.size_bytes, found.created_at)


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextmanager
def _compressed(path: Path) -> Iterator[tuple[Path, bool]]:
    """The file as it is stored, and whether it was compressed for that."""
    if _begins(path, _ZSTD) or _begins(path, _GZIP):
        yield path, False
        return
    draft = path.with_suffix(f".new-{os.urandom(6).hex()}")
    program = ["zstd", "-q", "-1"] if Path("/usr/bin/zstd").exists() else ["gzip", "-1n"]
    try:
        _filter(program, path, draft)
        yield draft, True
    finally:
        draft.unlink(missing_ok=True)


def _decompressor(path: Path) -> list[str]:
    return ["zstd", "-dq"] if _begins(path, _ZSTD) else ["gzip", "-d"]


def _begins(path: Path, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _filter(command: Sequence[str], source: Path, to: Path) -> None:
    with source.open("rb") as given, to.open("wb") as file:
        done = subprocess.run(  # noqa: S603
            command, stdin=given, stdout=file, stderr=subprocess.PIPE, check=False
        )
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace")[-300:])
