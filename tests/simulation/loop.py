"""An event loop whose time is virtual: it passes only when nothing is left to do, and then it jumps
to the next timer. Nothing waits, and a run is the same every time."""

import asyncio
import contextvars
import selectors
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
_Ts = TypeVarTuple("_Ts")

EPOCH = 1_800_000_000
"""The time of day when a run begins."""
_PATIENCE_SEC = 0.05
"""Of real time: an engine that is silent for longer may wait for something that takes time here."""
_LONG_PATIENCE_SEC = 30
"""Where nothing happens here before the engine's client gives up: then the machine is busy."""
_GIVES_UP_SEC = 5


class NothingLeftError(Exception):
    """Every task waits for something that can't happen any more."""


class _NoSockets(selectors.BaseSelector):
    """Waits by moving the time on. Knows only the loop's own wake-up socket, which stays silent."""

    def __init__(self) -> None:
        self.now = 0.0
        self._registered: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._registered[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._registered.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise NothingLeftError
        self.now += timeout
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._registered


class _Sockets(selectors.DefaultSelector):
    """Time stands still while an engine works, but for one that seems to hang."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.at_work = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if ready := super().select(self._patience_sec(timeout)):
            return ready
        if timeout is None and not self.at_work:
            raise NothingLeftError
        self.now += timeout or 0
        return []

    def _patience_sec(self, timeout: float | None) -> float:
        if not self.at_work or timeout == 0:
            return 0
        return _PATIENCE_SEC if timeout and timeout < _GIVES_UP_SEC else _LONG_PATIENCE_SEC


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    _virtual: _NoSockets | _Sockets

    def __init__(self) -> None:
        self._virtual = self._selector()
        super().__init__(self._virtual)
        self.set_task_factory(_owned_task)

    def _selector(self) -> _NoSockets | _Sockets:
        return _NoSockets()

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(
        self,
        executor: Any,  # noqa: ARG002 - the signature is asyncio's
        func: Callable[[*_Ts], T],
        *args: *_Ts,
    ) -> asyncio.Future[T]:
        """At once, without a thread."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class EngineTimeLoop(VirtualTimeLoop):
    """The same beside real engines, with real sockets and threads."""

    run_in_executor = asyncio.SelectorEventLoop.run_in_executor

    def _selector(self) -> _Sockets:
        return _Sockets()

    @contextmanager
    def engine_at_work(self) -> Iterator[None]:
        assert isinstance(self._virtual, _Sockets)
        self._virtual.at_work += 1
        try:
            yield
        finally:
            self._virtual.at_work -= 1


class SkewedClock:
    """A replica's own clock, ahead of the others or behind them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, skew_sec: float = 0) -> None:
        self._loop = loop
        self._skew_sec = skew_sec

    def now(self) -> float:
        return EPOCH + self._loop.time() + self._skew_sec


class Process:
    """Tasks that die together, at whatever they are waiting for."""

    def __init__(self) -> None:
        self.is_dead = False
        self.at_death: list[Callable[[], Awaitable[None]]] = []
        """What is closed when nothing of it runs any more."""
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order, so that a run can be repeated

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        context = contextvars.copy_context()
        context.run(_process.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Tasks that are started within belong to it."""
        token = _process.set(self)
        try:
            yield
        finally:
            _process.reset(token)

    def add(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def kill(self) -> None:
        """Return when nothing of it runs. What it does while it is cancelled reaches nobody."""
        self.is_dead = True
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.sleep(0)
        while self.at_death:
            await self.at_death.pop()()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled():
            task.exception()  # whoever waits has received it, or is dead


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


def _owned_task(
    loop: asyncio.AbstractEventLoop, work: Any, *, context: contextvars.Context | None = None
) -> asyncio.Task[Any]:
    context = context or contextvars.copy_context()
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, context=context)
    if (process := context.get(_process)) is not None:
        process.add(task)
    return task
