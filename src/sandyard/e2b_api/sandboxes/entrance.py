"""The way into a sandbox: by its token or a signed link; and what its machine uses."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol

from sandyard.e2b_api.envd.machine import Credentials, UserSession, account_of
from sandyard.e2b_api.envd.paths import ROOT
from sandyard.e2b_api.errors import AccessTokenMissingError, LinkOverError, SandboxGoneError
from sandyard.e2b_api.links import LinkSigners
from sandyard.e2b_api.model import SandboxView, is_running, iso
from sandyard.e2b_api.templates.finder import TemplateFinder
from sandyard.e2b_api.tokens import FileLink, Holder, SandboxTokens, key_id_of
from sandyard.kit.clock import Clock, utc_time
from sandyard.platform.access.credentials import (
    AccountCredential,
    CredentialLookup,
    KeyCredential,
)
from sandyard.platform.access.principal import Scope
from sandyard.platform.measurements.model import MeasurementBucket, cpu_share, share
from sandyard.platform.measurements.ports import MeasurementStore
from sandyard.platform.sandboxes.errors import SandboxRecycledError, SandboxUnknownError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.network.gateway_targets import SandboxTargets
from sandyard.platform.sandboxes.ports import SandboxVariables
from sandyard.platform.templates.model import Template
from sandyard.runtime.errors import NotRunningError, RunNotFoundError
from sandyard.runtime.model import Sample
from sandyard.runtime.sessions.ports import Session

_BUCKET_SEC = 5
_LONGEST = timedelta(days=7)
Sampler = Callable[[Sandbox], Awaitable[Sample]]


class SandboxMetrics:
    def __init__(self, store: MeasurementStore, sample: Sampler, *, clock: Clock) -> None:
        self._store = store
        self._sample = sample
        self._clock = clock

    async def list(
        self, view: SandboxView, *, start: float | None, end: float | None
    ) -> Sequence[dict[str, Any]]:
        """Oldest first; without a span, of its whole life, but at most of a week."""
        sandbox = view.sandbox
        until = utc_time(end) if end else utc_time(self._clock.now()) + timedelta(seconds=1)
        since = utc_time(start) if start else sandbox.created_at
        since = max(since, until - _LONGEST)
        if since >= until:
            return []
        found = await self._store.buckets(
            sandbox.sandbox_id, start=since, end=until, bucket_sec=_BUCKET_SEC
        )
        samples = [_sample(view, each) for each in found]
        latest = await self.latest(view) if end is None else None
        return samples if latest is None else [*samples, latest]

    async def latest(self, view: SandboxView) -> dict[str, Any] | None:
        """Its current usage; None if it does not run."""
        sandbox = view.sandbox
        try:
            sample = await self._sample(sandbox)
        except (NotRunningError, RunNotFoundError):
            return None
        began_at = (sandbox.started_at or sandbox.created_at).timestamp()
        return _sample(
            view,
            MeasurementBucket(
                start=utc_time(sample.at),
                cpu_utilization=cpu_share(None, sample, started_at=began_at, cpu=sandbox.cpu_spec),
                memory_utilization=share(sample.memory_bytes, sandbox.memory_spec * (1 << 30)),
                storage_utilization=share(sample.storage_bytes, view.disk_mb << 20),
                count=1,
            ),
        )


def _sample(view: SandboxView, bucket: MeasurementBucket) -> dict[str, Any]:
    sandbox = view.sandbox
    memory, disk = int(sandbox.memory_spec * (1 << 30)), view.disk_mb << 20
    return {
        "timestamp": iso(bucket.start),
        "timestampUnix": int(bucket.start.timestamp()),
        "cpuCount": max(1, int(sandbox.cpu_spec)),
        "cpuUsedPct": bucket.cpu_utilization,
        "memUsed": int(memory * bucket.memory_utilization / 100),
        "memTotal": memory,
        "memCache": 0,
        "diskUsed": int(disk * bucket.storage_utilization / 100),
        "diskTotal": disk,
    }


class Sandboxes(Protocol):
    async def find(self, sandbox_id: str, *, account_id: str | None = None) -> Sandbox | None: ...

    async def active_on(self, node: str) -> Sequence[Sandbox]: ...


class Sessions(Protocol):
    async def into(self, sandbox: Sandbox) -> Session:
        """Raises NotRunningError."""


@dataclass(frozen=True, slots=True)
class SandboxMachine:
    """`Machine` of a running sandbox."""

    sandbox: Sandbox
    _session: Session
    _entrance: "Entrance"
    _check: Callable[[], Awaitable[Sandbox]]

    @property
    def id(self) -> str:
        return self.sandbox.sandbox_id

    async def open(self, user: str | None) -> UserSession:
        template = await self._entrance.template_of(self.sandbox)
        default = None if template is None else template.default_user
        account = await account_of(self._session, user or default)
        as_root = self._session.as_root() if account.name == ROOT else None
        folder = (None if template is None else template.working_folder) or account.home
        return UserSession(self, as_root or self._session, account, folder)

    async def variables(self, session: UserSession) -> Mapping[str, str]:
        sandbox = self.sandbox
        own = {
            "HOME": session.home,
            "USER": session.account.name,
            "LOGNAME": session.account.name,
            "SHELL": "/bin/bash",
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": sandbox.sandbox_id,
            "E2B_TEAM_ID": sandbox.owner_account_id,
            "E2B_TEMPLATE_ID": sandbox.template_id,
        }
        return own | dict(await self._entrance.variables.of_sandbox(sandbox))

    async def check_access(self) -> None:
        await self._check()

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


@dataclass(frozen=True, slots=True)
class Entrance:
    """`Machines` of this server: its sandboxes."""

    sandboxes: Sandboxes
    credentials: CredentialLookup
    sessions: Sessions
    targets: SandboxTargets
    variables: SandboxVariables
    tokens: SandboxTokens
    templates: TemplateFinder
    sample: Sampler
    clock: Clock
    node: str
    disk_bytes: int
    signers: LinkSigners = field(default_factory=LinkSigners)

    async def enter(self, credentials: Credentials) -> SandboxMachine:
        """A paused sandbox that wakes on requests is resumed."""
        came_at = self.clock.now()
        sandbox = await self._authorized(credentials, came_at)
        if not is_running(sandbox, utc_time(came_at)):
            sandbox = await self._woken(sandbox)
        check = partial(
            self._authorized, replace(credentials, sandbox_id=sandbox.sandbox_id), came_at
        )
        try:
            return SandboxMachine(sandbox, await self.sessions.into(sandbox), self, check)
        except NotRunningError as error:
            raise SandboxGoneError from error

    async def require_running(self, credentials: Credentials) -> None:
        now = self.clock.now()
        if not is_running(await self._authorized(credentials, now), utc_time(now)):
            raise SandboxGoneError

    async def _authorized(self, credentials: Credentials, came_at: float) -> Sandbox:
        """The sandbox that the credentials give access to; they may have expired since the request
        came."""
        sandbox_id, token, link = credentials.sandbox_id, credentials.token, credentials.link
        sandbox = None
        if sandbox_id is not None and token is not None:
            sandbox = await self._of_token(sandbox_id, token, came_at)
        if sandbox is None and link is not None:
            sandbox = await self._of_link(sandbox_id, link, came_at)
        if sandbox is None:
            raise AccessTokenMissingError(None if link is None else "invalid signature")
        return sandbox

    async def _of_token(self, sandbox_id: str, token: str, came_at: float) -> Sandbox | None:
        """The key is read beside the sandbox, and not after it."""
        holder = None
        if (key_id := key_id_of(token)) is not None:
            sandbox, key = await asyncio.gather(
                self.sandboxes.find(sandbox_id), self.credentials.find_key_by_id(key_id)
            )
            if sandbox is not None and key is not None:
                holder = _of_key(sandbox, key, utc_time(self.clock.now()))
        elif (sandbox := await self.sandboxes.find(sandbox_id)) is not None:
            owner = await self.credentials.find_account(sandbox.owner_account_id)
            holder = None if owner is None else _of_login(sandbox, owner)
        return sandbox if holder and self.tokens.opens(token, holder, at=came_at) else None

    async def _of_link(
        self, sandbox_id: str | None, link: FileLink, came_at: float
    ) -> Sandbox | None:
        """Links at a single origin do not name the sandbox whose token signed them. Raises
        LinkOverError for a valid link that has expired."""
        if sandbox_id is None:
            sandbox_id = await self.signers.find(link, partial(self._search, link, came_at))
        sandbox = None if sandbox_id is None else await self.sandboxes.find(sandbox_id)
        if sandbox is None or await self._signer(link, [sandbox], came_at) is None:
            return None
        if link.is_over(came_at):
            raise LinkOverError
        return sandbox

    async def _search(self, link: FileLink, came_at: float) -> str | None:
        return await self._signer(link, await self.sandboxes.active_on(self.node), came_at)

    async def _signer(
        self, link: FileLink, sandboxes: Sequence[Sandbox], came_at: float
    ) -> str | None:
        """The id of the one among these whose token signed the link; by a thread, if many."""
        owners = {each.owner_account_id for each in sandboxes}
        known = {each[0].account_id: each for each in await self.credentials.with_keys(owners)}

        def first() -> str | None:
            for sandbox in sandboxes:
                holders = self._holders(sandbox, *known[sandbox.owner_account_id])
                if any(self.tokens.signs(link, each, at=came_at) for each in holders):
                    return sandbox.sandbox_id
            return None

        return first() if len(sandboxes) == 1 else await asyncio.to_thread(first)

    def _holders(
        self, sandbox: Sandbox, owner: AccountCredential, keys: Sequence[KeyCredential]
    ) -> Sequence[Holder]:
        now = utc_time(self.clock.now())
        holders = [_of_login(sandbox, owner), *(_of_key(sandbox, each, now) for each in keys)]
        return [each for each in holders if each is not None]

    async def template_of(self, sandbox: Sandbox) -> Template | None:
        """The template, if it was built or is a snapshot, and still exists."""
        if sandbox.archive_id is None:
            return None
        return await self.templates.find_by_id(
            sandbox.template_id, account_id=sandbox.owner_account_id
        )

    async def _woken(self, sandbox: Sandbox) -> Sandbox:
        if not sandbox.wake_on_request or sandbox.recycled_at is not None:
            raise SandboxGoneError
        try:
            return (await self.targets.wake(sandbox.sandbox_id)).sandbox
        except (SandboxUnknownError, SandboxRecycledError) as error:
            raise SandboxGoneError from error


def _of_login(sandbox: Sandbox, owner: AccountCredential) -> Holder | None:
    return _holder(sandbox, owner) if owner.is_active else None


def _of_key(sandbox: Sandbox, key: KeyCredential, now: datetime) -> Holder | None:
    """None if the key is not valid, may not enter, or is another account's."""
    is_own = key.account.account_id == sandbox.owner_account_id
    may_enter = is_own and key.holds_at(now) and key.scope.includes(Scope.RUN)
    return _holder(sandbox, key.account, key.key_id) if may_enter else None


def _holder(sandbox: Sandbox, owner: AccountCredential, key_id: str | None = None) -> Holder:
    run = (sandbox.sandbox_id, sandbox.access_version)
    return Holder(*run, owner.account_id, owner.token_version, key_id)
