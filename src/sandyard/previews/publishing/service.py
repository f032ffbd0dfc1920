"""Publishing a version of a project's files, and unpublishing it."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from sandyard.kit.changes.events import actor as actor_of
from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import Background
from sandyard.kit.errors import SandyardError
from sandyard.previews import model
from sandyard.previews.errors import (
    DomainsLimitError,
    DomainTakenError,
    NotPublishedError,
    PreviewBusyError,
    PublishedPathError,
)
from sandyard.previews.files import (
    ProjectFile,
    Publication,
    PublicationChange,
    PublishAttempt,
    PublishMode,
    published_files,
)
from sandyard.previews.launcher.serving import FALLBACK
from sandyard.previews.model import FileQuota, Preview
from sandyard.previews.ports import PreviewStore, Project, ProjectLookup
from sandyard.previews.project_files import ProjectFiles
from sandyard.previews.projects import ProjectPreviews, require_project
from sandyard.previews.publishing.attempts import BuildFailedError, PublishAttempts
from sandyard.previews.publishing.domains import MOST_DOMAINS, DomainProofs

logger = logging.getLogger(__name__)

_JOB = actor_of("job", "publishing")
_MARGIN = timedelta(minutes=2)
"""How long after its end an attempt is not yet taken for abandoned: clocks differ."""


@dataclass(slots=True)
class PublishingReport:
    ended: int = 0


@dataclass(frozen=True, slots=True)
class Publishing:
    """Every use case concerns a project of the given account, and raises
    PreviewProjectNotFoundError if the account has none with this id."""

    store: PreviewStore
    projects: ProjectLookup
    files: ProjectFiles
    clock: Clock
    bytes_per_account: int
    proofs: DomainProofs
    attempts: PublishAttempts
    background: Background

    async def publish(
        self,
        project_id: str,
        *,
        version: int | None,
        root: str,
        fallback: str | None,
        account_id: str,
        actor: str,
    ) -> Publication:
        """The current version, or an earlier one, instead of what was published before. Raises
        VersionNotFoundError, PublishedPathError and FileBytesLimitError."""
        cause = Cause.by(actor, self.clock)
        number, there = await self.files.list(project_id, account_id=account_id, version=version)
        publication = Publication(number, root, fallback, cause.at)
        return await self._show(
            project_id, publication, published_files(there, root), account_id, cause
        )

    async def publish_with_sandbox(
        self,
        project_id: str,
        *,
        version: int | None,
        mode: PublishMode,
        root: str,
        fallback: str | None,
        account_id: str,
        actor: str,
    ) -> PublishAttempt:
        """Build the version, or start it, in the background; what was published before stays until
        that is done. Raises VersionNotFoundError and PublishingBusyError."""
        await self._previews.get(project_id, account_id, writable=True)
        number, there = await self.files.list(project_id, account_id=account_id, version=version)
        attempt = await self.attempts.begin(project_id, number, mode)
        publication = Publication(number, root, fallback, attempt.until, mode=mode)
        work = self._work(project_id, attempt, publication, there, account_id, actor)
        self.background.start(work, action="publish")
        return attempt

    async def _work(
        self,
        project_id: str,
        attempt: PublishAttempt,
        publication: Publication,
        there: Sequence[ProjectFile],
        account_id: str,
        actor: str,
    ) -> None:
        files: Mapping[str, bytes] = {each.path: each.content for each in there}
        sandboxes, sandbox_id = self.attempts.sandboxes, None
        outcome = replace(attempt, failure="it broke off")
        try:
            sandbox_id = await sandboxes.start(
                project_id, attempt, files, account_id=account_id, actor=actor
            )
            await self.attempts.until_ready(sandbox_id, attempt, account_id)
            root, files = publication.root, {}
            if attempt.mode == "build":
                root, files = await self.attempts.built_files(sandbox_id, root, account_id)
            runs = sandbox_id if attempt.mode == "run" else None
            cause = Cause.by(actor, self.clock)
            shown = replace(publication, root=root, sandbox_id=runs, published_at=cause.at)
            await self._show(project_id, shown, files, account_id, cause, attempt)
        except BuildFailedError as error:
            outcome = replace(attempt, failure=str(error), last_lines=error.lines)
        except SandyardError as error:
            outcome = replace(attempt, failure=error.message)
        finally:  # nothing is written in place of one that led to a publication
            await self.store.write_publish_attempt(project_id, outcome, instead_of=attempt.id)
            await self._end_unnamed(project_id, sandbox_id, account_id, actor)

    async def end_abandoned(self) -> PublishingReport:
        """End the sandboxes that neither a publication nor an attempt in progress names: those of a
        server that ended meanwhile, and those that could not be ended before."""
        report, before = PublishingReport(), utc_time(self.clock.now()) - _MARGIN
        for each in await self.attempts.sandboxes.list():
            # The attempt first: it goes in the same transaction that writes the publication.
            attempt = await self.store.publish_attempt(each.project_id)
            is_current = attempt is not None and attempt.id == each.attempt_id
            if attempt is None or not is_current or attempt.failed(before) is not None:
                report.ended += await self._end_unnamed(
                    each.project_id, each.sandbox_id, each.account_id, _JOB
                )
        return report

    async def _end_unnamed(
        self, project_id: str, sandbox_id: str | None, account_id: str, actor: str
    ) -> bool:
        """Whether it was ended: not if it is what is published, nor if that is impossible now; then
        the job tries it again."""
        shown = await self.store.publication(project_id)
        if sandbox_id is None or (shown is not None and shown.sandbox_id == sandbox_id):
            return False
        try:
            await self.attempts.sandboxes.end(sandbox_id, account_id=account_id, actor=actor)
        except SandyardError as error:
            logger.warning(
                "a sandbox that is not published any more could not be ended; "
                "the job `publishing` of its node tries again, or its owner recycles it",
                extra={
                    "action": "publish",
                    "project_id": project_id,
                    "sandbox_id": sandbox_id,
                    "error_code": error.code,
                },
            )
            return False
        return True

    async def _show(
        self,
        project_id: str,
        publication: Publication,
        files: Mapping[str, bytes],
        account_id: str,
        cause: Cause,
        attempt: PublishAttempt | None = None,
    ) -> Publication:
        """At the domains of what was published before, whose sandbox ends. Raises BuildFailedError
        if the attempt that leads to it was called off."""
        if publication.fallback is None and FALLBACK in files:
            publication = replace(publication, fallback=FALLBACK)
        if publication.sandbox_id is None and (
            not files or (publication.fallback is not None and publication.fallback not in files)
        ):
            raise PublishedPathError
        async for _ in ConflictRetries():
            if attempt is not None:
                await self.attempts.require_current(project_id, attempt)
            preview = await self._previews.get(project_id, account_id, writable=True)
            size = sum(len(each.content) for each in await self.store.files(project_id))
            size += sum(len(content) for content in files.values())
            quota = await self.store.read_file_quota(
                FileQuota(account_id, project_id, size, self.bytes_per_account)
            )
            before = await self.store.publication(project_id)
            found = replace(publication, domains=before.domains if before else ())
            changed = model.publish(preview, found.version, quota=quota, cause=cause)
            if await self._write(changed, PublicationChange(found, files, attempt)):
                if before is not None:
                    await self._end_unnamed(project_id, before.sandbox_id, account_id, cause.actor)
                return found
        raise PreviewBusyError

    async def unpublish(self, project_id: str, *, account_id: str, actor: str) -> None:
        """Nothing if it is not published."""
        cause = Cause.by(actor, self.clock)
        async for _ in ConflictRetries():
            preview = await self._previews.get(project_id, account_id, writable=True)
            attempt = await self.store.publish_attempt(project_id)
            if attempt is not None:  # it is called off, or has just led to what is read next
                await self.store.write_publish_attempt(project_id, None, instead_of=attempt.id)
            before = await self.store.publication(project_id)
            if before is None:
                return
            changed = model.unpublish(preview, cause=cause)
            if await self._write(changed, PublicationChange(None, {})):
                await self._end_unnamed(project_id, before.sandbox_id, account_id, actor)
                return
        raise PreviewBusyError

    async def get(self, project_id: str, *, account_id: str) -> Publication:
        """Raises NotPublishedError."""
        await self._previews.get_project(project_id, account_id)
        found = await self.store.publication(project_id)
        if found is None:
            raise NotPublishedError
        return found

    async def find(
        self, project_id: str, *, account_id: str
    ) -> tuple[Publication | None, PublishAttempt | None]:
        """What is published, and the attempt that is in progress or has failed. Raises
        NotPublishedError if there is neither."""
        await self._previews.get_project(project_id, account_id)
        found = await self.store.publication(project_id)
        attempt = await self.store.publish_attempt(project_id)
        if found is None and attempt is None:
            raise NotPublishedError
        return found, attempt

    async def add_domain(
        self, project_id: str, domain: str, *, account_id: str, actor: str
    ) -> Publication:
        """Show what is published at this host too. Raises NotPublishedError, DomainRefusedError,
        DomainUnprovenError, DomainTakenError and DomainsLimitError."""
        if domain in (await self.get(project_id, account_id=account_id)).domains:
            return await self.get(project_id, account_id=account_id)
        await self.proofs.require(project_id, domain)

        def added(found: Publication) -> Publication:
            if len(found.domains) >= MOST_DOMAINS:
                raise DomainsLimitError
            return replace(found, domains=sorted({*found.domains, domain}))

        async for _ in ConflictRetries():
            if await self.store.project_of_domain(domain) not in (None, project_id):
                raise DomainTakenError
            changed = partial(model.add_domain, domain=domain, cause=Cause.by(actor, self.clock))
            if found := await self._change(project_id, account_id, added, changed):
                return found
        raise PreviewBusyError

    async def remove_domain(
        self, project_id: str, domain: str, *, account_id: str, actor: str
    ) -> None:
        """Nothing if it is not published there. Raises NotPublishedError."""

        def removed(found: Publication) -> Publication:
            return replace(found, domains=[each for each in found.domains if each != domain])

        async for _ in ConflictRetries():
            changed = partial(model.remove_domain, domain=domain, cause=Cause.by(actor, self.clock))
            if await self._change(project_id, account_id, removed, changed):
                return
        raise PreviewBusyError

    async def _change(
        self,
        project_id: str,
        account_id: str,
        decide: Callable[[Publication], Publication],
        changed: Callable[[Preview], Transition[Preview]],
    ) -> Publication | None:
        """None if another was faster."""
        preview = await self._previews.get(project_id, account_id, writable=True)
        before = await self.get(project_id, account_id=account_id)
        after = decide(before)
        if after == before or await self._write(changed(preview), PublicationChange(after, None)):
            return after
        return None

    @property
    def _previews(self) -> ProjectPreviews:
        return ProjectPreviews(self.store, self.projects)

    async def _write(self, transition: Transition[Preview], change: PublicationChange) -> bool:
        after = transition.result

        async def write(project: Project | None) -> bool:
            require_project(project, writable=True)
            return await self.store.apply(transition, publication=change)

        return await self.projects.hold(after.account_id, after.project_id, write)
