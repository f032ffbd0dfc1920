"""Builds of templates: a recipe is run in a sandbox, and its files become the template's."""

import asyncio
import hashlib
import logging
import shlex
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from sandyard.e2b_api.builds.builder import Builder
from sandyard.e2b_api.builds.recipes import Recipe, builtin_of, environment_names
from sandyard.e2b_api.builds.records import (
    LONGEST_LINE,
    Build,
    BuildFolder,
    BuildLog,
    BuildRequest,
    Entry,
)
from sandyard.e2b_api.envd.machine import account_of
from sandyard.e2b_api.envd.paths import HOME, USER
from sandyard.e2b_api.errors import (
    BuildFailedError,
    BuildNotFoundError,
    BuildRefusedError,
    SandboxNotFoundError,
)
from sandyard.e2b_api.model import clamped_timeout, iso
from sandyard.e2b_api.sandboxes.entrance import Sessions
from sandyard.e2b_api.sandboxes.launcher import Workplace
from sandyard.e2b_api.sandboxes.service import BUILDER, E2bSandboxes
from sandyard.e2b_api.templates.finder import (
    TemplateFinder,
    TemplateName,
    archive_of,
    new_tag,
)
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import Background, KeyedLocks
from sandyard.kit.errors import ConflictError, RateLimitedError, SandyardError, UnavailableError
from sandyard.kit.idempotency import new_id
from sandyard.platform.access.principal import Principal
from sandyard.platform.images.model import Image, ImageStatus
from sandyard.platform.images.service import Images
from sandyard.platform.quotas.storage import StorageQuota
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.sandboxes.errors import QuotaExceededError
from sandyard.platform.sandboxes.model import NewSandbox, RunOptions, Sandbox
from sandyard.platform.templates.model import DEFAULT_TAG, NewTemplate, Template
from sandyard.runtime.store.archives import ArchiveFolder

logger = logging.getLogger(__name__)

_MOST_KNOWN = 50
_MOST_OPEN = 20
_LASTS_SEC = 3600
_STALE_SEC = 3600
_KEPT_SEC = 86_400
_MEBIBYTES_PER_GB = 1024
_STARTED = "This build was already started, or refused."


@dataclass(frozen=True, slots=True)
class Builds:
    sandboxes: E2bSandboxes
    templates: TemplateFinder
    archives: SandboxArchives
    sessions: Sessions
    uploads: ArchiveFolder
    records: BuildFolder
    clock: Clock
    most_bytes: int
    disk_bytes: int
    storage: StorageQuota
    images: Images
    background: Background = field(default_factory=Background)
    uploading: KeyedLocks = field(default_factory=KeyedLocks)

    async def request(self, wanted: BuildRequest, *, by: Principal) -> Build:
        """A build that waits for its recipe: of a new template, or of the account's own with this
        name. Raises RateLimitedError."""
        await asyncio.to_thread(self._forget_old)
        mine = self.records.list(by.account_id)
        if sum(each.is_open for each in mine) >= _MOST_OPEN:
            raise RateLimitedError("You are at your limit of running builds.", retry_after=10)
        own = await self.templates.find_own(wanted.name.name, account_id=by.account_id)
        template_id = new_id("tpl") if own is None else own.template_id
        now = self.clock.now()
        build_id = str(uuid.uuid5(uuid.NAMESPACE_OID, new_id("bld")))
        build = Build(build_id, template_id, by.account_id, wanted, now)
        self.records.write(build)
        return build

    def _forget_old(self) -> None:
        """Keeps each account's latest builds for a day, and those in progress."""
        now = self.clock.now()
        for account_id in self.records.account_ids():
            builds = self.records.list(account_id)
            done = [each for each in builds if not each.is_open]
            stale = [
                each
                for each in builds
                if now - each.asked_at > (_STALE_SEC if each.status == "waiting" else _KEPT_SEC)
            ]  # one that never began sooner than others; one that runs ends before
            for each in (*done[:-_MOST_KNOWN], *stale):
                self.records.delete(each)

    def get(self, template_id: str, build_id: str, *, by: Principal) -> Build:
        """Raises BuildNotFoundError."""
        found = self.records.find(by.account_id, build_id)
        if found is None or found.template_id != template_id:
            raise BuildNotFoundError
        return found

    async def log_entries(self, build: Build) -> Sequence[Entry]:
        return await asyncio.to_thread(self.records.entries, build)

    def has_template(self, template_id: str, *, by: Principal) -> bool:
        """Whether it has an open build."""
        own = self.records.list(by.account_id)
        return any(each.template_id == template_id and each.is_open for each in own)

    async def start(self, build: Build, recipe: Recipe, *, by: Principal) -> None:
        """Starts the build, which continues in the background. Raises BuildRefusedError."""
        if build.status != "waiting":
            raise BuildRefusedError(_STARTED)
        base, image = await self._base(recipe, by)
        if image is None:
            wanted = _template(build, recipe, base, Workplace.of(base))
            await self.templates.require_room(wanted, build.wanted.tags, account_id=by.account_id)
        log = self.records.open_log(build)
        if log is None:
            raise BuildRefusedError(_STARTED)
        build = replace(build, status="building")
        self.records.write(build)
        self.background.start(self._run(build, log, recipe, base, image, by), action="build")

    def refuse(self, build: Build, error: SandyardError) -> None:
        if build.status == "waiting" and (log := self.records.open_log(build)) is not None:
            self._conclude(build, log, "base", error.message)

    async def is_uploaded(self, template_id: str, files_hash: str, *, account_id: str) -> bool:
        return await self.uploads.find(upload_id(account_id, template_id, files_hash)) is not None

    async def upload(
        self, template_id: str, files_hash: str, content: AsyncIterator[bytes], *, account_id: str
    ) -> None:
        """Files for a step: an archive, optionally compressed with gzip. Raises BodyTooLargeError,
        also if the account's uploads together exceed one sandbox or its quota, QuotaExceededError
        and DiskFullError."""
        for each in await self.uploads.list_all():
            if self.clock.now() - each.created_at > _STALE_SEC:
                await self.uploads.delete(each.id)
        name = upload_id(account_id, template_id, files_hash)
        async with self.uploading.of(account_id):  # the next one counts this one
            await self.storage.require(account_id, 1, error=QuotaExceededError)
            left = min(
                self.disk_bytes - await self.uploads.bytes_of(account_id),
                await self.storage.left_bytes(account_id),
            )
            await self.uploads.write(name, content, most_bytes=min(self.most_bytes, left))

    async def _base(self, recipe: Recipe, by: Principal) -> tuple[Template, Image | None]:
        """The template that the build starts from, and its image, if that is being pulled. An image
        is an environment of this server or the account's own, with nothing of anybody's builds in
        it. Raises BuildRefusedError, ImageRefusedError."""
        if recipe.template is not None:
            return await self.templates.find(recipe.template, account_id=by.account_id), None
        builtin = builtin_of(recipe.image)
        official = await self.templates.find_official(builtin or "base", account_id=by.account_id)
        if builtin is not None and official is not None:
            return official, None
        if official is None:
            raise BuildRefusedError("This server has no template `base`, which images need.")
        known = await self.templates.environments()
        found = next((each for each in environment_names(recipe.image) if each in known), None)
        if found is not None:
            return replace(official, name=found, environment=found), None
        try:
            image = await self.images.pull(by, recipe.image, recipe.credentials)
        except ConflictError as error:
            raise BuildRefusedError(error.message) from error
        return replace(official, name=recipe.image), image

    async def _pulled(self, image: Image, by: Principal) -> str:
        """The id of the image once it is ready: that of the same one, if the account has it."""
        done = await self.images.until_done(image)
        if done.status is not ImageStatus.READY:
            raise BuildFailedError(done.reason or "the image could not be pulled")
        if (same := await self.images.find_same(done)) is None:
            return done.image_id
        await self.images.delete(by, done.image_id)
        return same.image_id

    async def _run(
        self,
        build: Build,
        log: BuildLog,
        recipe: Recipe,
        base: Template,
        image: Image | None,
        by: Principal,
    ) -> None:
        """Its status changes once its sandbox has ended."""
        sandbox: Sandbox | None = None
        step, failure = "base", "The build was cancelled."
        try:
            self._log(log, f"FROM {base.name}")
            if image is not None:
                base = replace(base, environment=await self._pulled(image, by))
            new = _builder_of(build, base, recipe)
            sandbox = await self.sandboxes.sandboxes.create_and_start(
                new, template=base, by=by, options=RunOptions(is_launched=False)
            )
            builder = await self._builder(build, log, sandbox)
            at = Workplace.of(base)
            for number, each in enumerate(recipe.steps, 1):
                step = str(number)
                at = await builder.run(each, at)
            step = "finalize"
            if recipe.start_command is not None and recipe.ready_command is not None:
                await builder.check_start(recipe.start_command, recipe.ready_command, at)
            account = await account_of(builder.session, at.user)
            at = replace(at, user=account.ids or account.name)
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
                self._conclude(build, log, step, failure)

    def _conclude(self, build: Build, log: BuildLog, step: str, failure: str) -> None:
        if not failure:
            log.append(self._entry("Build finished"), is_last=True)
            self.records.write(replace(build, status="ready"))
        else:
            log.append(self._entry(failure, "error"), is_last=True)
            last = self.records.entries(build)[-10:]
            reason = {"message": failure, "step": step, "logEntries": last}
            self.records.write(replace(build, status="error", reason=reason))
        log.close()

    async def _end(self, sandbox: Sandbox, by: Principal) -> None:
        try:
            await self.sandboxes.kill(sandbox.sandbox_id, by=by)
        except SandboxNotFoundError:
            return
        except UnavailableError:
            logger.exception("a build's sandbox ends at its timeout", extra={"action": "build"})

    async def _builder(self, build: Build, log: BuildLog, sandbox: Sandbox) -> Builder:
        return Builder(
            await self.sessions.into(sandbox),
            self.uploads,
            lambda given: upload_id(build.account_id, build.template_id, given),
            lambda line: self._log(log, line),
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
        archive_id = await self.archives.save(sandbox, build.build_id)
        wanted = replace(_template(build, recipe, base, at), archived_by=sandbox.sandbox_id)
        await self.templates.keep(
            wanted, archive_id, build.wanted.tags, by=by, template_id=build.template_id
        )

    def _log(self, log: BuildLog, message: str) -> bool:
        return log.append(self._entry(message))

    def _entry(self, message: str, level: str = "info") -> Entry:
        at = iso(utc_time(self.clock.now()))
        return {"timestamp": at, "level": level, "message": message[:LONGEST_LINE]}


def upload_id(account_id: str, template_id: str, files_hash: str) -> str:
    named = hashlib.sha256(f"{template_id}/{files_hash}".encode()).hexdigest()
    return f"{account_id}-{named}"


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
        archive_id=None if recipe.template is None else archive_of(base, recipe.template),
    )


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
