"""Access to a sandbox: by its id and its access token, or a signed link."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sandyard.e2b_api.envd.own_files import OwnFiles
from sandyard.e2b_api.envd.paths import home_of, known_user
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, SandboxGoneError
from sandyard.e2b_api.model import ROOT, USER, is_running
from sandyard.e2b_api.tokens import FileLink, SandboxTokens
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import SandyardError
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
    async def find(self, text: str, *, account_id: str) -> Template: ...


class Sessions(Protocol):
    async def into(self, sandbox: Sandbox) -> Session:
        """Raises NotRunningError."""
        ...


@dataclass(frozen=True, slots=True)
class Inside:
    """A session in a running sandbox."""

    sandbox: Sandbox
    session: Session
    user: str = USER
    template: Template | None = None
    """Its template, if that was built or is a snapshot."""

    @property
    def folder(self) -> str:
        """The default working directory of commands."""
        return (None if self.template is None else self.template.working_folder) or self.home

    @property
    def home(self) -> str:
        return home_of(self.user)

    @property
    def files(self) -> OwnFiles:
        return OwnFiles(self.session, is_root=self.user == ROOT)

    def by(self, name: str | None) -> "Inside":
        """As this user; without root in the sandbox, root is the user. Raises NoSuchUserError."""
        if known_user(name) == USER or (as_root := self.session.as_root()) is None:
            return self
        return replace(self, user=ROOT, session=as_root)


@dataclass(frozen=True, slots=True)
class Visit:
    """A call to a sandbox."""

    sandbox_id: str
    token: str | None = None
    link: FileLink | None = None


class Entrance:
    def __init__(
        self,
        sandboxes: Sandboxes,
        sessions: Sessions,
        waking: Waking,
        variables: SandboxVariables,
        tokens: SandboxTokens,
        templates: Templates,
        *,
        clock: Clock,
        node: str,
    ) -> None:
        self._sandboxes = sandboxes
        self._sessions = sessions
        self._waking = waking
        self._variables = variables
        self._tokens = tokens
        self._templates = templates
        self._clock = clock
        self._node = node

    def check(self, visit: Visit) -> None:
        """Raises AccessTokenMissingError, whether the sandbox exists or not."""
        if visit.token is not None and self._tokens.opens(visit.token, visit.sandbox_id):
            return
        if visit.link is not None and self._signs(visit.link, visit.sandbox_id):
            return
        raise AccessTokenMissingError(None if visit.link is None else "invalid signature")

    async def enter(self, sandbox_id: str) -> Inside:
        """Raises SandboxGoneError. A paused sandbox that wakes on requests is resumed."""
        sandbox = await self._sandboxes.find(sandbox_id)
        if sandbox is None:
            raise SandboxGoneError
        if not is_running(sandbox, utc_time(self._clock.now())):
            sandbox = await self._woken(sandbox)
        try:
            return Inside(sandbox, await self._sessions.into(sandbox))
        except NotRunningError as error:
            raise SandboxGoneError from error

    async def find_signed(self, link: FileLink) -> str:
        """The id of the sandbox whose token signed the link: links at a single origin do not name
        it. Raises AccessTokenMissingError."""
        for sandbox in await self._sandboxes.active_on(self._node):
            if self._signs(link, sandbox.sandbox_id):
                return sandbox.sandbox_id
        raise AccessTokenMissingError

    async def variables(self, inside: Inside) -> Mapping[str, str]:
        """The environment variables of commands in the sandbox."""
        sandbox = inside.sandbox
        own = {
            "HOME": inside.home,
            "USER": inside.user,
            "LOGNAME": inside.user,
            "SHELL": "/bin/bash",
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": sandbox.sandbox_id,
            "E2B_TEAM_ID": sandbox.owner_account_id,
            "E2B_TEMPLATE_ID": sandbox.template_id,
        }
        return own | dict(await self._variables.of_sandbox(sandbox))

    async def visitor(self, inside: Inside, name: str | None) -> Inside:
        """As this user, or as its template's default user. Raises NoSuchUserError."""
        template = await self._built(inside.sandbox)
        inside = replace(inside, template=template)
        return inside.by(name or (None if template is None else template.default_user))

    async def _built(self, sandbox: Sandbox) -> Template | None:
        """The template, if it was built or is a snapshot, and still exists."""
        if sandbox.archive_id is None:
            return None
        try:
            return await self._templates.find(
                sandbox.template_id, account_id=sandbox.owner_account_id
            )
        except SandyardError:
            return None

    def _signs(self, link: FileLink, sandbox_id: str) -> bool:
        """Raises LinkOverError for a valid link that has expired."""
        if not self._tokens.signs(link, sandbox_id):
            return False
        if link.is_over(self._clock.now()):
            raise LinkOverError
        return True

    async def _woken(self, sandbox: Sandbox) -> Sandbox:
        if not sandbox.wake_on_request or sandbox.recycled_at is not None:
            raise SandboxGoneError
        try:
            await self._waking.wake(sandbox.sandbox_id)
        except SandyardError as error:
            raise SandboxGoneError from error
        woken = await self._sandboxes.find(sandbox.sandbox_id)
        if woken is None:
            raise SandboxGoneError
        return woken
