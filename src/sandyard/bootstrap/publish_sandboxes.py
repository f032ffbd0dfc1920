"""Sandboxes of the Platform in which projects are built for publishing, or run."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.entities.model import Listing
from sandyard.platform.sandboxes.errors import SandboxUnknownError
from sandyard.platform.sandboxes.model import (
    DEFAULT_IDLE_STOP,
    LONGEST_RUN,
    NewSandbox,
    RunOptions,
    Sandbox,
)
from sandyard.platform.templates.errors import TemplateNotFoundError
from sandyard.platform.templates.model import Template, TemplateFilter
from sandyard.platform.wiring.part import PlatformPart
from sandyard.previews.files import PublishAttempt, PublishMode
from sandyard.previews.ports import Application
from sandyard.previews.providers.program import LAUNCHER, STATE_BYTES, application_of
from sandyard.previews.publishing.attempts import LONGEST
from sandyard.previews.publishing.ports import PublishSandbox
from sandyard.runtime.errors import FileMissingError
from sandyard.runtime.model import FileChanges
from sandyard.wiring.addresses import PROGRAM_PORT

_TEMPLATE = "python"
"""A machine that waits for commands, with what the host has: Node too."""
_LABEL = "sandyard-publish"
"""In its metadata: its project and its attempt."""
_LAUNCH = 'web: PREVIEW_PURPOSE={mode} exec python3 -I launcher.pyz 127.0.0.1 "$PORT" site state\n'


@dataclass(frozen=True, slots=True)
class AccountSandboxes:
    """As made by the account itself: in its list, its quotas and its bills."""

    platform: PlatformPart
    memory_gb: float

    async def start(
        self,
        project_id: str,
        attempt: PublishAttempt,
        files: Mapping[str, bytes],
        *,
        account_id: str,
        actor: str,
    ) -> str:
        by = Principal(account_id, Role.USER, acts_as=actor)
        mode, runs, template = attempt.mode, attempt.mode == "run", await self._template(account_id)
        new = NewSandbox(
            name=f"{mode} {project_id} {attempt.id}",
            metadata={_LABEL: f"{project_id} {attempt.id}"},
            template_id=template.template_id,
            project_id=project_id,
            description="Runs what is published." if runs else "Builds what is published.",
            cpu_spec=1,
            memory_spec=self.memory_gb,
            max_running_seconds=int((LONGEST_RUN if runs else LONGEST).total_seconds()),
            wake_on_request=runs,
            public_ports=[PROGRAM_PORT] if runs else None,
            recycle_on_timeout=not runs,
            idle_stop_minutes=DEFAULT_IDLE_STOP // timedelta(minutes=1) if runs else None,
        )
        made = await self.platform.wired.sandboxes.create_and_start(
            new,
            by=by,
            template=template,
            options=RunOptions(is_launched=False),
            prepare=partial(self._launch, files=files, mode=mode, by=by),
        )
        return made.sandbox_id

    async def _launch(
        self, made: Sandbox, *, files: Mapping[str, bytes], mode: PublishMode, by: Principal
    ) -> None:
        written = {f"site/{path}": content for path, content in files.items()}
        own = {"Procfile": _LAUNCH.format(mode=mode).encode(), "launcher.pyz": LAUNCHER}
        session = await self.platform.wired.sessions.into(made)
        await session.files.apply(FileChanges(written | own))
        await self.platform.wired.programs.start(made.sandbox_id, by=by)

    async def list(self) -> Sequence[PublishSandbox]:
        wired = self.platform.wired
        found = []
        for each in await wired.store.labelled(_LABEL, node=wired.node):
            project_id, _, attempt_id = (each.metadata or {})[_LABEL].partition(" ")
            owner = each.owner_account_id
            found.append(PublishSandbox(each.sandbox_id, owner, project_id, attempt_id))
        return found

    async def application(self, sandbox_id: str, *, account_id: str) -> Application | None:
        session = await self.platform.wired.sessions.open(sandbox_id, account_id=account_id)
        try:
            found = session.files.read("state/state.json", limit=STATE_BYTES)
            return application_of(b"".join([piece async for piece in found]))
        except FileMissingError:
            return None

    async def read_tar(
        self, sandbox_id: str, folder: str, *, account_id: str
    ) -> AsyncIterator[bytes]:
        session = await self.platform.wired.sessions.open(sandbox_id, account_id=account_id)
        async for piece in session.files.read_tar(f"site/{folder}"):
            yield piece

    async def end(self, sandbox_id: str, *, account_id: str, actor: str) -> None:
        by = Principal(account_id, Role.USER, acts_as=actor)
        try:
            await self.platform.wired.sandboxes.recycle(sandbox_id, by=by)
        except SandboxUnknownError:
            return

    async def _template(self, account_id: str) -> Template:
        """The one that ships with the product, whatever it is called by now."""
        only = TemplateFilter(search=_TEMPLATE)
        page = await self.platform.templates.list(account_id, Listing(only, "name", 100, None))
        for each in page.items:
            if each.is_official and each.repository_url == f"builtin:{_TEMPLATE}":
                return each
        raise TemplateNotFoundError(
            f"The official template builtin:{_TEMPLATE} was deleted. An admin can create it again."
        )
