"""Builds of templates: a recipe is run in a sandbox, and its files become the template's.

Only this process knows them until they are done.
"""

import asyncio
import hashlib
import logging
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sandyard.e2b_api.builds.builder import Builder
from sandyard.e2b_api.builds.recipes import Recipe, Step, Workplace
from sandyard.e2b_api.envd.paths import HOME, USER
from sandyard.e2b_api.errors import BuildNotFoundError, BuildRefusedError, SandboxNotFoundError
from sandyard.e2b_api.model import clamped_timeout, iso
from sandyard.e2b_api.sandboxes.entrance import Sessions
from sandyard.e2b_api.sandboxes.service import BUILDER, E2bSandboxes
from sandyard.e2b_api.templates.finder import (
    TemplateFinder,
    TemplateName,
    archive_of,
    new_tag,
)
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.errors import RateLimitedError, SandyardError, UnavailableError
from sandyard.platform.access.principal import Principal
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.model import NewSandbox, Sandbox
from sandyard.platform.templates.model import DEFAULT_TAG, NewTemplate, Template
from sandyard.platform.templates.service import new_id
from sandyard.runtime.records.archives import ArchiveFolder

logger = logging.getLogger(__name__)

Status = Literal["waiting", "building", "ready", "error"]

_MOST_KNOWN = 50
_MOST_OPEN = 20
_MOST_ENTRIES = 20_000
_LONGEST_LINE = 4096
_LASTS_SEC = 3600
_STALE_SEC = 3600
_MEBIBYTES_PER_GB = 1024


@dataclass(frozen=True, slots=True)
class BuildRequest:
    name: TemplateName
    tags: Sequence[str]
    cpu: float
    memory_gb: float


@dataclass(slots=True)
class Build:
    """A requested build."""

    build_id: str
    template_id: str
    account_id: str
    wanted: BuildRequest
    status: Status = "waiting"
    entries: list[dict[str, Any]] = field(default_factory=list)
    reason: dict[str, Any] | None = None
    asked_at: float = 0

    @property
    def is_open(self) -> bool:
        return self.status in ("waiting", "building")


class Builds:
    def __init__(
        self,
        sandboxes: E2bSandboxes,
        templates: TemplateFinder,
        archives: SandboxArchives,
        sessions: Sessions,
        uploads: ArchiveFolder,
        *,
        clock: Clock,
        most_bytes: int,
        disk_bytes: int,
    ) -> None:
        self._sandboxes = sandboxes
        self._templates = templates
        self._archives = archives
        self._sessions = sessions
        self._uploads = uploads
        self._clock = clock
        self._most_bytes = most_bytes
        self._disk_bytes = disk_bytes
        self._builds: dict[str, Build] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def request(self, wanted: BuildRequest, *, by: Principal) -> Build:
        """A build that waits for its recipe: of a new template, or of the account's own with this
        name. Raises RateLimitedError."""
        self._forget_old(by.account_id)
        mine = [each for each in self._builds.values() if each.account_id == by.account_id]
        if sum(each.is_open for each in mine) >= _MOST_OPEN:
            raise RateLimitedError("You are at your limit of running builds.", retry_after=10)
        own = await self._templates.find_own(wanted.name.name, account_id=by.account_id)
        template_id = new_id() if own is None else own.template_id
        now = self._clock.now()
        build = Build(str(uuid.uuid4()), template_id, by.account_id, wanted, asked_at=now)
        self._builds[build.build_id] = build
        return build

    def _forget_old(self, account_id: str) -> None:
        """Keeps the account's latest builds, and those in progress."""
        mine = [each for each in self._builds.values() if each.account_id == account_id]
        before = self._clock.now() - _STALE_SEC
        stale = [each for each in mine if each.status == "waiting" and each.asked_at < before]
        done = [each for each in mine if not each.is_open][:-_MOST_KNOWN]
        for each in (*stale, *done):
            del self._builds[each.build_id]

    def get(self, template_id: str, build_id: str, *, by: Principal) -> Build:
        """Raises BuildNotFoundError."""
        found = self._builds.get(build_id)
        if found is None or (found.account_id, found.template_id) != (by.account_id, template_id):
            raise BuildNotFoundError
        return found

    def has_template(self, template_id: str, *, by: Principal) -> bool:
        """Whether it has an open build."""
        own = (each for each in self._builds.values() if each.account_id == by.account_id)
        return any(each.template_id == template_id and each.is_open for each in own)

    async def start(
        self, template_id: str, build_id: str, recipe: Recipe, *, by: Principal
    ) -> None:
        """Starts the build, which continues in the background. Raises BuildNotFoundError,
        BuildRefusedError."""
        build = self.get(template_id, build_id, by=by)
        if build.status != "waiting":
            raise BuildRefusedError("This build was already started.")
        base = await self._base(recipe, by)
        build.status = "building"
        task = asyncio.create_task(self._run(build, recipe, base, by))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def is_uploaded(self, template_id: str, files_hash: str, *, account_id: str) -> bool:
        return self._uploads.find(upload_id(account_id, template_id, files_hash)) is not None

    async def upload(
        self, template_id: str, files_hash: str, content: AsyncIterator[bytes], *, account_id: str
    ) -> None:
        """Files for a step: an archive, optionally compressed with gzip. Raises BodyTooLargeError,
        also if the account's uploads together exceed one sandbox."""
        self._remove_stale()
        own = [each for each in self._uploads.list_all() if each.id.startswith(f"{account_id}-")]
        left = self._disk_bytes - sum(each.size_bytes for each in own)
        name = upload_id(account_id, template_id, files_hash)
        await self._uploads.write(name, content, most_bytes=min(self._most_bytes, left))

    def _remove_stale(self) -> None:
        for each in self._uploads.list_all():
            if self._clock.now() - each.created_at > _STALE_SEC:
                self._uploads.delete(each.id)

    async def _base(self, recipe: Recipe, by: Principal) -> Template:
        """The template that the build starts from. Raises BuildRefusedError."""
        if recipe.base is not None:
            return await self._templates.find(recipe.base, account_id=by.account_id)
        seen = await self._templates.list(by.account_id)
        environment = environment_name(recipe.image or "")
        fitting = [each for each in seen if each.environment == environment and each.is_empty]
        if not fitting:
            raise BuildRefusedError(
                f"This server does not pull images, and has no template for '{recipe.image}'. "
                "Start with from_base_image() or from_template(); see docs/e2b.md."
            )
        return fitting[0]

    async def _run(self, build: Build, recipe: Recipe, base: Template, by: Principal) -> None:
        """Its status changes once its sandbox has ended."""
        sandbox: Sandbox | None = None
        step, failure = "base", "The build was cancelled."
        try:
            self._log(build, f"FROM {base.name}")
            sandbox = await self._sandboxes.build(_builder_of(build, base, recipe), by=by)
            at = _workplace(base)
            for number, each in enumerate(recipe.steps, 1):
                step = str(number)
                at = await self._step(build, sandbox, each, at)
            step = "finalize"
            await self._check_start(build, recipe, sandbox, at)
            await self._keep(build, recipe, base, sandbox, at, by)
            failure = ""
        except SandyardError as error:
            failure = error.message
        except Exception:
            logger.exception("a build failed", extra={"action": "build"})
            failure = "The build failed inside the server."
        finally:
            try:
                if sandbox is not None:
                    await self._end(sandbox, by)
            finally:
                self._conclude(build, step, failure)

    def _conclude(self, build: Build, step: str, failure: str) -> None:
        if failure:
            self._fail(build, step, failure)
        else:
            self._log(build, "Build finished")
            build.status = "ready"

    async def _end(self, sandbox: Sandbox, by: Principal) -> None:
        try:
            await self._sandboxes.kill(sandbox.sandbox_id, by=by)
        except SandboxNotFoundError:
            return
        except UnavailableError:
            logger.exception("a build's sandbox ends at its timeout", extra={"action": "build"})

    async def _step(self, build: Build, sandbox: Sandbox, step: Step, at: Workplace) -> Workplace:
        self._log(build, step.description)
        builder = await self._builder(build, sandbox)
        return await builder.run(step, at, lambda line: self._log(build, line))

    async def _check_start(
        self, build: Build, recipe: Recipe, sandbox: Sandbox, at: Workplace
    ) -> None:
        if recipe.start_command is None or recipe.ready_command is None:
            return
        self._log(build, f"START {recipe.start_command}")
        builder = await self._builder(build, sandbox)
        start, ready = recipe.start_command, recipe.ready_command
        await builder.check_start(start, ready, at, lambda line: self._log(build, line))

    async def _builder(self, build: Build, sandbox: Sandbox) -> Builder:
        return Builder(
            await self._sessions.into(sandbox),
            self._uploads,
            lambda given: upload_id(build.account_id, build.template_id, given),
        )

    async def _keep(
        self,
        build: Build,
        recipe: Recipe,
        base: Template,
        sandbox: Sandbox,
        at: Workplace,
        by: Principal,
    ) -> None:
        archive_id = await self._archives.save(sandbox, build.build_id)
        wanted = replace(_template(build, recipe, base, at), archived_by=sandbox.sandbox_id)
        await self._templates.keep(
            wanted, archive_id, build.wanted.tags, by=by, new_id=build.template_id
        )

    def _log(self, build: Build, message: str, level: str = "info") -> None:
        if len(build.entries) < _MOST_ENTRIES:
            at: datetime = utc_time(self._clock.now())
            build.entries.append(
                {"timestamp": iso(at), "level": level, "message": message[:_LONGEST_LINE]}
            )

    def _fail(self, build: Build, step: str, message: str) -> None:
        self._log(build, message, "error")
        build.reason = {"message": message, "step": step, "logEntries": build.entries[-10:]}
        build.status = "error"


def upload_id(account_id: str, template_id: str, files_hash: str) -> str:
    named = hashlib.sha256(f"{template_id}/{files_hash}".encode()).hexdigest()
    return f"{account_id}-{named}"


def environment_name(image: str) -> str:
    """The environment name of an image: lower case letters, digits, dots and dashes."""
    return image.lower().removesuffix(":latest").replace("/", "-").replace(":", "-")


def _builder_of(build: Build, base: Template, recipe: Recipe) -> NewSandbox:
    return NewSandbox(
        name=f"{BUILDER}{build.build_id}",
        template_id=base.template_id,
        project_id=None,
        description=f"Builds the template {build.wanted.name.name}.",
        cpu_spec=max(build.wanted.cpu, base.min_cpu_required),
        memory_spec=max(build.wanted.memory_gb, base.min_memory_required),
        max_running_seconds=clamped_timeout(_LASTS_SEC),
        network="internet",
        recycle_on_timeout=True,
        archive_id=archive_of(base, recipe.base or base.name),
    )


def _workplace(base: Template) -> Workplace:
    """Where the first step runs."""
    folder, user = base.working_folder or HOME, base.default_user or USER
    return Workplace(folder, user, base.build_variables or {})


def _template(build: Build, recipe: Recipe, base: Template, at: Workplace) -> NewTemplate:
    return NewTemplate(
        name=build.wanted.name.name,
        description=f"Built from {base.name}.",
        category="build",
        language=base.language,
        min_cpu_required=max(build.wanted.cpu, base.min_cpu_required),
        min_memory_required=max(build.wanted.memory_gb, base.min_memory_required),
        is_official=False,
        is_public=False,
        repository_url=base.repository_url,
        tags=None,
        environment=base.environment,
        start_command=_start_command(recipe, at) or base.start_command,
        ready_command=recipe.ready_command or base.ready_command,
        working_folder=None if at.folder == HOME else at.folder,
        default_user=None if at.user == USER else at.user,
        build_variables=dict(at.variables) or None,
    )


def _start_command(recipe: Recipe, at: Workplace) -> str | None:
    """Exports the recipe's variables, which commands in sandboxes do not have."""
    if recipe.start_command is None:
        return None
    given = [f"export {name}={shlex.quote(value)}" for name, value in at.variables.items()]
    return "; ".join([*given, recipe.start_command])


def build_request(name: str, tags: Sequence[str], *, cpu: int, memory_mb: int) -> BuildRequest:
    """Raises InvalidRequestError."""
    given = TemplateName.new(name)
    of_name = [] if given.tag is None else [given.tag]
    named = list(dict.fromkeys([*of_name, *map(new_tag, tags)])) or [DEFAULT_TAG]
    return BuildRequest(given, named, float(max(1, cpu)), max(0.5, memory_mb / _MEBIBYTES_PER_GB))
