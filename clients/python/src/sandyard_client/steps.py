"""The steps that a flow asks its driver to perform. A flow is a generator that decides and does no
I/O: it yields steps and is sent their results, so that one flow serves callers with and without
asyncio."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from sandyard_client.wire import Answer, Lost, Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Result: an `Answer` with its whole body, or `Lost`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    """Result: a `Stream` if the status is a success, else the whole `Answer`, or `Lost`."""

    request: Request


@dataclass(frozen=True, slots=True)
class Stream:
    """A response whose body is streamed; its driver closes it when the flow ends."""

    answer: Answer
    handle: Any


@dataclass(frozen=True, slots=True)
class Read:
    """Result: the next bytes, None at the end, or `Lost`."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """A blocking operation, such as a write to disk. Result: its return value."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Emit:
    """A value for the consumer of the flow."""

    value: Any


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The flow has ended with this value."""

    value: T


Step: TypeAlias = Send | Open | Read | Sleep | Work | Emit
Flow: TypeAlias = Generator[Step, Any, T]


def send(request: Request) -> Flow[Answer | Lost]:
    outcome: Answer | Lost = yield Send(request)
    return outcome


def work(function: Callable[[], T]) -> Flow[T]:
    result: T = yield Work(function)
    return result


def advance(
    flow: Flow[T], result: Any = None, *, error: BaseException | None = None
) -> Step | Done[T]:
    """The flow's next step, given the result of the last one or its error."""
    try:
        return flow.send(result) if error is None else flow.throw(error)
    except StopIteration as end:
        return Done(end.value)
