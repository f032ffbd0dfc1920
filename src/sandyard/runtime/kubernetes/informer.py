"""What the cluster has of one kind of our objects, known to this server by a list and a watch of
each namespace."""

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

    def __init__(self, api: KubernetesApi, kind: Kind, *others: KubernetesApi) -> None:
        """Each is of a namespace. No name is in two of them."""
        self.objects: dict[str, Object] = {}
        """By name."""
        self.seen_at: dict[str, float] = {}
        """When an object that is gone was last known to be there."""
        self._apis = {each.namespace: each for each in (api, *others)}
        self._first = api
        self._kind: Kind = kind
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """By namespace. One that has died is begun again by the next use."""
        self._changed = asyncio.Event()
        self._listed: set[str] = set()
        """The namespaces whose state is known."""
        self._failures: dict[str, ApiUnavailableError | ApiRefusedError] = {}

    async def synced(self) -> None:
        """Return if the state is the cluster's. Raises ApiUnavailableError, ApiRefusedError."""
        for namespace, api in self._apis.items():
            if namespace not in self._tasks or self._tasks[namespace].done():
                self._failures.pop(namespace, None)
                self._tasks[namespace] = asyncio.create_task(self._run(api))
        while len(self._listed) < len(self._apis) and not self._failures:
            await self.changed()
        for failure in self._failures.values():
            raise failure

    def api_of(self, found: Object) -> KubernetesApi:
        """That of its namespace."""
        return self._apis.get(found["metadata"].get("namespace"), self._first)

    async def get(self, name: str) -> Object | None:
        """The object; one that is not known yet is asked for."""
        await self.synced()
        if name not in self.objects:
            await self.fresh(name)
        return self.objects.get(name)

    async def fresh(self, name: str) -> Object | None:
        for api in self._apis.values():
            if (found := await api.get(self._kind, name)) is not None:
                self.note(found)
                return found
        self._drop(name)
        return None

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
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, api: KubernetesApi) -> None:
        pause_sec = _FIRST_PAUSE_SEC
        while True:
            try:
                found, version = await api.list(self._kind, selector=SELECTOR)
                self._replace(api, found, int(version))
                pause_sec = _FIRST_PAUSE_SEC
                while True:
                    version = await self._follow(api, version)
            except ExpiredError:
                continue
            except (ApiUnavailableError, ApiRefusedError) as error:
                self._failures[api.namespace] = error
                self._tell()
            await asyncio.sleep(pause_sec)
            pause_sec = min(2 * pause_sec, _LONGEST_PAUSE_SEC)

    async def _follow(self, api: KubernetesApi, version: str) -> str:
        """One watch to its end; returns where the next one continues."""
        events = api.watch(self._kind, selector=SELECTOR, version=version)
        async for event, found in events:
            version = found["metadata"]["resourceVersion"]
            if event == "DELETED":
                self._drop(found["metadata"]["name"])
            elif event != "BOOKMARK":
                self.note(found)
        return version

    def _replace(self, api: KubernetesApi, found: list[Object], version: int) -> None:
        names = {each["metadata"]["name"] for each in found}
        for name, known in list(self.objects.items()):
            # A later one was made after the list.
            if name not in names and self.api_of(known) is api and _version(known) <= version:
                self._drop(name)
        for each in found:
            self.note(each)
        self._listed.add(api.namespace)
        self._failures.pop(api.namespace, None)
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
