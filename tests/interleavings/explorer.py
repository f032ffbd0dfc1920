"""All interleavings of a few actors, breadth first, over the real use cases and decisions.

An actor is a coroutine that reaches the world only through `Port.call`, and each call is one atomic
step. What an actor does next depends on nothing but the answers it has had, so its state is that
sequence of answers: the coroutine of a state is made again by giving it the same answers, and each
of its states is computed once. A state of the whole is the world, the state of each actor, the time
and the faults that are left. Every state is visited once, by a shortest path.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from sandyard.kit.errors import SandyardError, UnavailableError


class World(Protocol):
    """What the actors share: an immutable, hashable value."""

    def perform(self, request: "Request", now: int) -> tuple[Any, Any]:
        """The world after this atomic step, and the answer; an exception as the answer is
        raised."""
        ...


W = TypeVar("W", bound=World)


@dataclass(frozen=True, slots=True)
class Request:
    name: str
    arguments: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(_short, self.arguments))})"


@dataclass(slots=True)
class Port:
    """An actor's way to the world, and its clock, which shows the time of its last answer."""

    time: int

    async def call(self, name: str, *arguments: Any) -> Any:
        return await _Step(Request(name, arguments))

    def now(self) -> float:
        return self.time


class _Step:
    def __init__(self, request: Request) -> None:
        self._request = request

    def __await__(self) -> Generator[Request, Any, Any]:
        return (yield self._request)


Program = Callable[[Port], Coroutine[Any, Any, Any]]


@dataclass(frozen=True, slots=True)
class Actor:
    """A process and its caller, who repeats a call that failed with UnavailableError."""

    name: str
    program: Program
    may_crash: bool = True


@dataclass(frozen=True, slots=True)
class Raised:
    """The outcome of a use case that refused."""

    error: str


@dataclass(slots=True, eq=False)
class _Local:
    """One state of an actor: the answers that led to it, and what it does next."""

    parent: "_Local | None"
    answer: Any
    now: int
    request: Request | None = None
    outcome: Any = None
    is_done: bool = False
    children: dict[Hashable, "_Local"] = field(default_factory=dict)

    def answers(self) -> list[tuple[Any, int]]:
        """Oldest first."""
        found = []
        local = self
        while local.parent is not None:
            found.append((local.answer, local.now))
            local = local.parent
        return found[::-1]


_DEAD = "dead"


@dataclass(frozen=True, slots=True)
class _State(Generic[W]):
    world: W
    locals: tuple[Any, ...]
    now: int
    crashes: int
    losses: int


@dataclass(frozen=True, slots=True)
class View(Generic[W]):
    """What an invariant may look at."""

    world: W
    now: int
    outcomes: dict[str, Any]
    """Of the actors that are done."""
    is_over: bool
    """Nothing more can happen."""


@dataclass(frozen=True, slots=True)
class Change(Generic[W]):
    """One step: by whom, what the actor had been answered, and the world before and after."""

    actor: str
    request: Request
    answers: Sequence[Any]
    before: W
    after: W


@dataclass(frozen=True, slots=True)
class Scope(Generic[W]):
    name: str
    world: W
    actors: tuple[Actor, ...]
    times: tuple[int, ...]
    """The time may move on from one to the next at any step."""
    invariant: Callable[[View[W]], list[str]]
    step_rule: Callable[[Change[W]], list[str]] | None = None
    afterwards: tuple[Program, ...] = ()
    """Run one after another when nothing more can happen, before the last look of `invariant`: the
    jobs that a live installation runs again and again."""
    afterwards_at: int | None = None
    """When they run; by default at the last of `times`."""
    crashes: int = 1
    losses: int = 1


@dataclass(slots=True)
class Explored:
    scope: str
    actors: int
    states: int = 0
    depth: int = 0
    ends: int = 0
    seconds: float = 0
    problems: list[str] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    """A shortest way to the problems."""

    def __str__(self) -> str:
        return (
            f"{self.scope}: {self.actors} actors, {self.states} states, depth {self.depth}, "
            f"{self.ends} ends, {self.seconds:.1f} s, {len(self.problems)} violations"
        )


def explore(scope: Scope[W], *, most: int = 2_000_000) -> Explored:
    """Visit every state, or return at the first that breaks a rule. Fails if there are more than
    `most`, because then the scope is not covered."""
    return _Search(scope, most).run()


class _Search(Generic[W]):
    def __init__(self, scope: Scope[W], most: int) -> None:
        self._scope = scope
        self._most = most
        self._roots = [self._local(actor, None, None, scope.times[0]) for actor in scope.actors]
        self._came_from: dict[_State[W], tuple[_State[W] | None, str]] = {}
        self._found = Explored(scope.name, len(scope.actors))

    def run(self) -> Explored:
        began = time.perf_counter()
        scope, found = self._scope, self._found
        first = _State(scope.world, tuple(self._roots), scope.times[0], scope.crashes, scope.losses)
        self._came_from[first] = (None, "")
        queue = deque([(first, 0)])
        while queue and not found.problems:
            state, depth = queue.popleft()
            found.depth = depth
            following = list(self._following(state))
            self._check(state, is_over=not following)
            for label, after, problems in following:
                if problems and not found.problems:
                    self._report(problems, [*self._trace(state), label])
                if after not in self._came_from:
                    self._came_from[after] = (state, label)
                    queue.append((after, depth + 1))
            assert len(self._came_from) <= self._most, f"{scope.name} is too large a scope"
        found.states = len(self._came_from)
        found.seconds = time.perf_counter() - began
        return found

    def _following(self, state: _State[W]) -> Iterator[tuple[str, _State[W], list[str]]]:
        is_waiting = False
        for index, actor in enumerate(self._scope.actors):
            local = state.locals[index]
            if local is _DEAD or local.is_done:
                continue
            is_waiting = True
            yield from self._steps_of(state, index, actor, local)
        place = self._scope.times.index(state.now) + 1
        if is_waiting and place < len(self._scope.times):
            later = self._scope.times[place]
            yield f"{later - state.now} s pass", replace(state, now=later), []

    def _steps_of(
        self, state: _State[W], index: int, actor: Actor, local: _Local
    ) -> Iterator[tuple[str, _State[W], list[str]]]:
        assert local.request is not None
        world, answer = state.world.perform(local.request, state.now)
        problems = self._broken_by(state, actor, local, world)
        after = self._with(state, index, self._next(actor, local, answer, state.now))
        label = f"{actor.name}: {local.request} -> {_short(answer)}"
        yield label, replace(after, world=world), problems
        if state.losses:
            lost = UnavailableError("The answer was lost.")
            retried = self._with(state, index, self._next(actor, local, lost, state.now))
            for what, then in (("answer", world), ("request", state.world)):
                yield (
                    f"{actor.name}: {local.request} -> the {what} is lost",
                    replace(retried, world=then, losses=state.losses - 1),
                    [],
                )
        if state.crashes and actor.may_crash and local.parent is not None:
            for what, then in (("dies", _DEAD), ("dies and starts again", self._roots[index])):
                crashed = self._with(state, index, then)
                yield f"{actor.name} {what}", replace(crashed, crashes=state.crashes - 1), []

    def _with(self, state: _State[W], index: int, local: Any) -> _State[W]:
        """A caller whose call failed calls again."""
        if local is not _DEAD and isinstance(local.outcome, UnavailableError):
            local = self._roots[index]
        locals_ = (*state.locals[:index], local, *state.locals[index + 1 :])
        return replace(state, locals=locals_)

    def _next(self, actor: Actor, local: _Local, answer: Any, now: int) -> _Local:
        key = (repr(answer) if isinstance(answer, Exception) else answer, now)
        child = local.children.get(key)
        if child is None:
            child = local.children[key] = self._local(actor, local, answer, now)
        return child

    def _local(self, actor: Actor, parent: _Local | None, answer: Any, now: int) -> _Local:
        local = _Local(parent, answer, now)
        answers = local.answers()
        random.seed(actor.name)
        local.request, local.outcome = drive(actor.program, self._scope.times[0], answers)
        local.is_done = local.request is None
        return local

    def _broken_by(self, state: _State[W], actor: Actor, local: _Local, world: W) -> list[str]:
        if self._scope.step_rule is None or world == state.world or local.request is None:
            return []
        answers = [answer for answer, _ in local.answers()]
        return self._scope.step_rule(Change(actor.name, local.request, answers, state.world, world))

    def _check(self, state: _State[W], *, is_over: bool) -> None:
        if self._found.problems:
            return
        world, now = state.world, state.now
        if is_over:
            self._found.ends += 1
            if self._scope.afterwards:
                now = self._scope.afterwards_at or self._scope.times[-1]
            for program in self._scope.afterwards:
                world = run_alone(world, program, now)
        outcomes = {
            actor.name: local.outcome
            for actor, local in zip(self._scope.actors, state.locals, strict=True)
            if local is not _DEAD and local.is_done
        }
        problems = self._scope.invariant(View(world, now, outcomes, is_over))
        if problems:
            self._report(problems, self._trace(state))

    def _report(self, problems: list[str], trace: list[str]) -> None:
        self._found.problems = problems
        self._found.trace = trace

    def _trace(self, state: _State[W]) -> list[str]:
        labels = []
        came = self._came_from[state]
        while came[0] is not None:
            labels.append(came[1])
            came = self._came_from[came[0]]
        return labels[::-1]


def run_alone(world: W, program: Program, now: int) -> W:
    """Run it to its end while nobody else does anything; the world after it."""
    random.seed("alone")
    port = Port(now)
    with _SteppedLoop():
        work = program(port)
        try:
            request = _resume(work, None)
            while True:
                world, answer = world.perform(request, now)
                request = _resume(work, answer)
        except StopIteration:
            return world


def drive(
    program: Program, began: int, answers: Sequence[tuple[Any, int]]
) -> tuple[Request | None, Any]:
    """The next request of a program that has had these answers, or its outcome."""
    port = Port(began)
    with _SteppedLoop():
        work = program(port)
        try:
            request = _resume(work, None)
            for answer, now in answers:
                port.time = now
                request = _resume(work, answer)
        except StopIteration as end:
            return None, end.value
        except UnavailableError as error:
            return None, error
        except SandyardError as error:
            return None, Raised(type(error).__name__)
        work.close()
        return request, None


def _resume(work: Coroutine[Any, Any, Any], answer: Any) -> Request:
    """Its next request; pauses between retries take no time."""
    yielded = work.throw(answer) if isinstance(answer, Exception) else work.send(answer)
    while not isinstance(yielded, Request):
        yielded = work.send(None)
    return yielded


class _SteppedLoop:
    """An event loop as far as the use cases need one: no time passes, and a pause ends at once."""

    def __enter__(self) -> None:
        asyncio._set_running_loop(cast("asyncio.AbstractEventLoop", self))

    def __exit__(self, *_: object) -> None:
        asyncio._set_running_loop(None)

    def time(self) -> float:
        return 0.0

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> Any:
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        del delay, context
        callback(*args)
        return _Handle()

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        del callback, args, context
        return _Handle()


class _Handle:
    def cancel(self) -> None:
        pass


def _short(value: Any) -> str:
    """For traces: what identifies a thing, and its state."""
    subject = getattr(type(value), "SUBJECT", None)
    if subject is not None:
        status = getattr(value, "status", "")
        shown = status if isinstance(status, str) else ""
        return f"{str(getattr(value, subject))[:12]}#{value.sequence} {shown}".strip()
    if hasattr(value, "events") and hasattr(value, "before"):
        return "+".join(f"{each.kind} {each.subject[:12]}" for each in value.events)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_short, value)) + "]"
    if isinstance(value, Exception):
        return type(value).__name__
    return str(value)[:60]
