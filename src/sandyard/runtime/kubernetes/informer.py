"""What the cluster has of one kind of our objects, known to this server by a list and a watch."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

from sandyard.runtime.kubernetes.api import (
    ApiRefusedError,
    ApiUnavailableError,
    ExpiredError,
    Kind,
    KubernetesApi,
    Object,
    needed,
)
from sandyard.runtime.kubernetes.manifest import SELECTOR

_FIRST_PAUSE_SEC, _LONGEST_PAUSE_SEC = 0.1, 5.0


class Informer:
    """Begins with its first use. An API server that is away leaves the last state, which is then
    not shown by `synced`."""

    def __init__(self, api: KubernetesApi, kind: Kind) -> None:
        self.objects: dict[str, Object] = {}
        """By name."""
        self.seen_at: dict[str, float] = {}
        """When an object that is gone was last known to be there."""
        self._api = api
        self._kind: Kind = kind
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._is_listed = False
        self._failure: ApiUnavailableError | ApiRefusedError | None = None

    async def synced(self) -> None:
        """Return if the state is the cluster's. Raises ApiUnavailableError, ApiRefusedError."""
        if self._task is None or self._task.done():
            self._failure = None
            self._task = asyncio.create_task(self._run())
        while not self._is_listed and self._failure is None:
            await self.changed()
        if self._failure is not None:
            raise self._failure

    async def get(self, name: str) -> Object | None:
        """The object; one that is not known yet is asked for."""
        await self.synced()
        if name not in self.objects and (found := await self._api.get(self._kind, name)):
            self.note(found)
        return self.objects.get(name)

    async def fresh(self, name: str) -> Object | None:
        if (found := await self._api.get(self._kind, name)) is None:
            self._drop(name)
        else:
            self.note(found)
        return found

    def note(self, found: Object) -> None:
        """An object that the API server has returned."""
        name = found["metadata"]["name"]
        known = self.objects.get(name)
        if known is None or _version(known) < _version(found):
            self.objects[name] = needed(found)
            self._tell()

    async def until(
        self, name: str, is_done: Callable[[Object | None], bool], *, timeout_sec: float
    ) -> Object | None:
        """The object as it is then, or at the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_sec):
                while not is_done(self.objects.get(name)):
                    await self.changed()
        return self.objects.get(name)

    async def changed(self) -> None:
        await self._changed.wait()

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        pause_sec = _FIRST_PAUSE_SEC
        while True:
            try:
                found, version = await self._api.list(self._kind, selector=SELECTOR)
                self._replace(found, int(version))
                pause_sec = _FIRST_PAUSE_SEC
                while True:
                    version = await self._follow(version)
            except ExpiredError:
                continue
            except (ApiUnavailableError, ApiRefusedError) as error:
                self._failure = error
                self._tell()
            await asyncio.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)

    async def _follow(self, version: str) -> str:
        """One watch to its end; returns where the next one continues."""
        events = self._api.watch(self._kind, selector=SELECTOR, version=version)
        async for event, found in events:
            version = found["metadata"]["resourceVersion"]
            if event == "DELETED":
                self._drop(found["metadata"]["name"])
            elif event != "BOOKMARK":
                self.note(found)
        return version

    def _replace(self, found: list[Object], version: int) -> None:
        names = {each["metadata"]["name"] for each in found}
        for name in self.objects.keys() - names:
            if _version(self.objects[name]) <= version:  # else it was made after the list
                self._drop(name)
        for each in found:
            self.note(each)
        self._is_listed, self._failure = True, None
        self._tell()

    def _drop(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.seen_at[name] = time.time()
            self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _version(found: Object) -> int:
    return int(found["metadata"]["resourceVersion"])
