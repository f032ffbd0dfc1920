"""A project's preview and its provider as a value that only knows compare-and-set, and the use
cases of Previews over it."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Transition
from sandyard.kit.clock import utc_time
from sandyard.kit.errors import UnavailableError
from sandyard.previews.attempts import Attempts
from sandyard.previews.errors import ProviderTimeoutError, SandboxGoneError
from sandyard.previews.files import Entry, Version
from sandyard.previews.jobs import EndPreviews
from sandyard.previews.model import Preview, RunningPreviews
from sandyard.previews.ports import (
    AccountLookup,
    PageKey,
    PreviewProvider,
    PreviewSandbox,
    PreviewStore,
    ProjectLookup,
)
from sandyard.previews.service import PreviewPolicy, Previews
from tests.interleavings.explorer import Port, Program, Request

PROJECT = "prj-00000000000000001"
ACCOUNT = "1" * 12
TTL_SEC = 60
ATTEMPT_SEC = 20


@dataclass(frozen=True, slots=True)
class Known:
    """The project, for Previews."""

    created_at: datetime
    is_archived: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Made:
    """A sandbox at the provider."""

    attempt: str
    began_at: int
    ends_at: int

    def runs(self, now: int) -> bool:
        return now < self.ends_at


@dataclass(frozen=True, slots=True)
class PreviewsWorld:
    preview: Preview | None = None
    sandboxes: frozenset[Made] = frozenset()
    is_deleted: bool = False
    compares: bool = True
    """Switched off only to show that the search finds what then goes wrong."""
    log: tuple[Event, ...] = field(default=(), compare=False)
    """In the order of writing, on the way by which this world was first reached."""

    def running(self, now: int) -> list[Made]:
        return sorted(each for each in self.sandboxes if each.runs(now))

    def perform(self, request: Request, now: int) -> tuple["PreviewsWorld", Any]:
        do: Callable[..., tuple[PreviewsWorld, Any]] = getattr(self, f"do_{request.name}")
        return do(now, *request.arguments)

    def do_begin(self, _now: int) -> tuple["PreviewsWorld", None]:
        """A process may begin at any time, and reads the clock then."""
        return self, None

    def do_project(self, now: int) -> tuple["PreviewsWorld", Known | None]:
        del now
        return self, None if self.is_deleted else Known(utc_time(0))

    def do_delete(self, _now: int) -> tuple["PreviewsWorld", None]:
        return replace(self, is_deleted=True), None

    def do_deleted(self, _now: int) -> tuple["PreviewsWorld", bool]:
        return self, self.is_deleted

    def do_find(self, _now: int) -> tuple["PreviewsWorld", Preview | None]:
        return self, self.preview

    def do_set(self, _now: int, made: Transition[Preview]) -> tuple["PreviewsWorld", bool]:
        before = made.before and made.before.sequence
        there = self.preview and self.preview.sequence
        if self.compares and before != there:
            return self, False
        return replace(self, preview=made.after, log=self.log + made.events), True

    def do_create(self, now: int, attempt: str) -> tuple["PreviewsWorld", Made]:
        made = Made(attempt, now, now + TTL_SEC)
        return replace(self, sandboxes=self.sandboxes | {made}), made

    def do_attempt(self, now: int, attempt: str) -> tuple["PreviewsWorld", Made | None]:
        return self, next((each for each in self.running(now) if each.attempt == attempt), None)

    def do_get(self, now: int, attempt: str) -> tuple["PreviewsWorld", Any]:
        found = next((each for each in self.running(now) if each.attempt == attempt), None)
        return self, found or SandboxGoneError()

    def do_kill(self, now: int, attempt: str) -> tuple["PreviewsWorld", None]:
        sandboxes = frozenset(
            replace(each, ends_at=now) if each.attempt == attempt and each.runs(now) else each
            for each in self.sandboxes
        )
        return replace(self, sandboxes=sandboxes), None


class SteppedPreviews:
    """The ports to the store, to projects and to accounts: each call is one step."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def find(self, *_: str) -> Preview | None:
        return cast("Preview | None", await self._port.call("find"))

    async def apply(self, transition: Transition[Preview], *, files: Any = None) -> bool:
        del files
        return bool(await self._port.call("set", transition))

    async def page_of_running(
        self, at: datetime, *, after: PageKey | None, limit: int
    ) -> tuple[Sequence[Preview], PageKey | None]:
        del after, limit
        found = await self.find()
        return ([found] if found is not None and found.is_running(now=at) else []), None

    async def running(self, account_id: str, *, at: datetime) -> RunningPreviews:
        return RunningPreviews(account_id, at, frozenset())

    async def touch(self, preview: Preview, *, last_checked: datetime) -> None:
        """Data, not state."""

    async def changes_since(
        self, project_id: str, version: int
    ) -> tuple[Mapping[str, bytes], Sequence[str], int]:
        del project_id
        return {}, [], version

    async def entries(self, project_id: str) -> Mapping[str, Entry]:
        del project_id
        return {}

    async def versions(self, project_id: str) -> Sequence[Version]:
        del project_id
        return []

    async def count_files(self, project_id: str) -> int:
        del project_id
        return 0

    async def deactivated(self, account_ids: Collection[str]) -> AbstractSet[str]:
        del account_ids
        return frozenset()


class SteppedProjects:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def find(self, account_id: str, project_id: str) -> Known | None:
        del account_id, project_id
        return cast("Known | None", await self._port.call("project"))

    async def deleted(self, project_ids: Collection[str]) -> AbstractSet[str]:
        is_deleted = project_ids and await self._port.call("deleted")
        return set(project_ids) if is_deleted else set()


class SteppedProvider:
    """A lost call to it is one whose outcome nobody knows, as at E2B."""

    def __init__(self, port: Port, actor: str) -> None:
        self._port = port
        self._actor = actor
        self._numbers = count(1)

    def make_attempt_id(self) -> str:
        return f"{self._actor}{next(self._numbers)}at{int(self._port.now())}"

    async def create(
        self, *, project_id: str, attempt: str, files: Mapping[str, bytes], ttl: timedelta
    ) -> PreviewSandbox:
        del project_id, files, ttl
        return _sandbox(await self._call("create", attempt))

    async def find_attempt(self, *, project_id: str, attempt: str) -> PreviewSandbox | None:
        del project_id
        found = await self._call("attempt", attempt)
        return None if found is None else _sandbox(found)

    async def get(self, sandbox_id: str) -> PreviewSandbox:
        return _sandbox(await self._call("get", sandbox_id))

    async def end_time(self, sandbox_id: str) -> datetime:
        return (await self.get(sandbox_id)).end_time

    async def kill(self, sandbox_id: str) -> None:
        await self._call("kill", sandbox_id)

    async def _call(self, name: str, attempt: str) -> Any:
        try:
            return await self._port.call(name, attempt)
        except UnavailableError as error:
            raise ProviderTimeoutError(reason=error.reason) from error


def _sandbox(made: Made) -> PreviewSandbox:
    return PreviewSandbox(
        sandbox_id=made.attempt,
        preview_url="",
        start_time=utc_time(made.began_at),
        end_time=utc_time(made.ends_at),
        attempt=made.attempt,
    )


class Services:
    """The use cases of Previews in one process."""

    def __init__(self, port: Port, actor: str) -> None:
        store = cast("PreviewStore", SteppedPreviews(port))
        provider = cast("PreviewProvider", SteppedProvider(port, actor))
        projects = cast("ProjectLookup", SteppedProjects(port))
        accounts = cast("AccountLookup", store)
        policy = PreviewPolicy(
            ttl=timedelta(seconds=TTL_SEC),
            per_account=3,
            attempt_for=timedelta(seconds=ATTEMPT_SEC),
            wait_sec=-1,
        )
        self.port = port
        self.previews = Previews(store, provider, projects, accounts, clock=port, policy=policy)
        attempts = Attempts(store, provider, accounts, port, policy.ttl)
        self.ending = EndPreviews(store, attempts, projects, accounts, port)

        checks = self.previews._checks  # callers of other processes share no question
        checks._ask = checks._ask_provider  # type: ignore[method-assign]
        checks.check_in_time = checks.check  # type: ignore[method-assign]

    async def sync(self) -> None:
        """Without the flight that callers of one process share: each is a process of its own."""
        await self.previews._sync(PROJECT, ACCOUNT, "account:1")

    async def stop(self) -> None:
        await self.previews.stop(PROJECT, account_id=ACCOUNT, actor="account:1")

    async def delete(self) -> None:
        await self.port.call("delete")


Call = Callable[[Services], Coroutine[Any, Any, Any]]


def program(call: Call, *, actor: str) -> Program:
    """Of a process that makes this one call; its answer does not matter."""

    async def run(port: Port) -> None:
        await port.call("begin")
        await call(Services(port, actor))

    return run
