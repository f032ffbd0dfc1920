"""The way into a sandbox: by its id and its access token, or a signed link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sandyard.e2b_api.envd.machine import Credentials, UserSession
from sandyard.e2b_api.envd.paths import HOME, ROOT, ROOT_HOME, USER, known_user
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, SandboxGoneError
from sandyard.e2b_api.model import is_running
from sandyard.e2b_api.sandboxes.metrics import Sampler
from sandyard.e2b_api.tokens import FileLink, SandboxTokens
from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.sandboxes.errors import SandboxRecycledError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.templates.model import Template
from sandyard.runtime.errors import NotRunningError
from sandyard.runtime.sessions.ports import Session


class Sandboxes(Protocol):
    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None: ...

    async def active_on(self, node: str) -> Sequence[Sandbox]: ...


class Waking(Protocol):
    async def wake(self, target_id: str) -> object:
        """Start it for a request."""
        ...


class Templates(Protocol):
    async def find_by_id(self, template_id: str, *, account_id: str) -> Template | None: ...


class Sessions(Protocol):
    async def into(self, sandbox: Sandbox) -> Session:
        """Raises NotRunningError."""
        ...


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """`Machine` of a running sandbox."""

    sandbox: Sandbox
    _session: Session
    _entrance: "Entrance"

    @property
    def id(self) -> str:
        return self.sandbox.sandbox_id

    async def open(self, user: str | None) -> UserSession:
        """Without root in the sandbox, root is the user."""
        template = await self._entrance.template_of(self.sandbox)
        named = known_user(user or (None if template is None else template.default_user))
        as_root = self._session.as_root() if named == ROOT else None
        user, home = (USER, HOME) if as_root is None else (ROOT, ROOT_HOME)
        folder = (None if template is None else template.working_folder) or home
        return UserSession(self, as_root or self._session, user, home, folder)

    async def variables(self, session: UserSession) -> Mapping[str, str]:
        sandbox = self.sandbox
        own = {
            "HOME": session.home,
            "USER": session.user,
            "LOGNAME": session.user,
            "SHELL": "/bin/bash",
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": sandbox.sandbox_id,
            "E2B_TEAM_ID": sandbox.owner_account_id,
            "E2B_TEMPLATE_ID": sandbox.template_id,
        }
        return own | dict(await self._entrance.variables.of_sandbox(sandbox))

    async def metrics(self) -> Mapping[str, Any]:
        sandbox, sample = self.sandbox, await self._entrance.sample(self.sandbox)
        began = sandbox.started_at.timestamp() if sandbox.started_at else sample.at
        elapsed = max(1.0, sample.at - began)
        return {
            "ts": int(sample.at),
            "cpu_count": max(1, int(sandbox.cpu_spec)),
            "cpu_used_pct": round(sample.cpu_seconds / elapsed / sandbox.cpu_spec * 100, 2),
            "mem_total": int(sandbox.memory_spec * (1 << 30)),
            "mem_used": sample.memory_bytes,
            "disk_used": sample.storage_bytes,
            "disk_total": self._entrance.disk_bytes,
        }


class Entrance:
    """`Machines` of this server: its sandboxes."""

    def __init__(
        self,
        sandboxes: Sandboxes,
        sessions: Sessions,
        waking: Waking,
        variables: SandboxVariables,
        tokens: SandboxTokens,
        templates: Templates,
        sample: Sampler,
        *,
        clock: Clock,
        node: str,
        disk_bytes: int,
    ) -> None:
        self.variables = variables
        self.sample = sample
        self.disk_bytes = disk_bytes
        self._sandboxes = sandboxes
        self._sessions = sessions
        self._waking = waking
        self._tokens = tokens
        self._templates = templates
        self._clock = clock
        self._node = node

    async def authorize(self, credentials: Credentials) -> str:
        """Links at a single origin do not name the sandbox whose token signed them."""
        sandbox_id, token, link = credentials.sandbox_id, credentials.token, credentials.link
        if sandbox_id is None:
            active = [] if link is None else await self._sandboxes.active_on(self._node)
            signers = (each.sandbox_id for each in active if self._signs(link, each.sandbox_id))
            sandbox_id = next(signers, None)
        elif token is not None and self._tokens.opens(token, sandbox_id):
            return sandbox_id
        elif link is not None and not self._signs(link, sandbox_id):
            raise AccessTokenMissingError("invalid signature")
        if sandbox_id is None or link is None:
            raise AccessTokenMissingError
        return sandbox_id

    async def enter(self, machine_id: str | None) -> SandboxMachine:
        """A paused sandbox that wakes on requests is resumed."""
        sandbox = None if machine_id is None else await self._sandboxes.find(machine_id)
        if sandbox is None:
            raise SandboxGoneError
        if not is_running(sandbox, utc_time(self._clock.now())):
            sandbox = await self._woken(sandbox)
        try:
            return SandboxMachine(sandbox, await self._sessions.into(sandbox), self)
        except NotRunningError as error:
            raise SandboxGoneError from error

    async def template_of(self, sandbox: Sandbox) -> Template | None:
        """The template, if it was built or is a snapshot, and still exists."""
        if sandbox.archive_id is None:
            return None
        return await self._templates.find_by_id(
            sandbox.template_id, account_id=sandbox.owner_account_id
        )

    def _signs(self, link: FileLink | None, sandbox_id: str) -> bool:
        """Raises LinkOverError for a valid link that has expired."""
        if link is None or not self._tokens.signs(link, sandbox_id):
            return False
        if link.is_over(self._clock.now()):
            raise LinkOverError
        return True

    async def _woken(self, sandbox: Sandbox) -> Sandbox:
        if not sandbox.wake_on_request or sandbox.recycled_at is not None:
            raise SandboxGoneError
        try:
            await self._waking.wake(sandbox.sandbox_id)
        except (SandboxUnknownError, SandboxRecycledError) as error:
            raise SandboxGoneError from error
        woken = await self._sandboxes.find(sandbox.sandbox_id)
        if woken is None:
            raise SandboxGoneError
        return woken
