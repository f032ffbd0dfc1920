"""Publishing a version of a project's files, and unpublishing it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock
from sandyard.previews import model
from sandyard.previews.errors import (
    DomainsLimitError,
    DomainTakenError,
    NotPublishedError,
    PreviewBusyError,
    PublishedPathError,
)
from sandyard.previews.files import Publication, PublicationChange, published_files
from sandyard.previews.launcher.serving import FALLBACK
from sandyard.previews.model import FileQuota, Preview
from sandyard.previews.ports import PreviewStore, Project, ProjectLookup
from sandyard.previews.project_files import ProjectFiles
from sandyard.previews.projects import ProjectPreviews, require_project
from sandyard.previews.publishing.domains import MOST_DOMAINS, DomainProofs


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
        files = published_files(there, root)
        if fallback is None and FALLBACK in files:
            fallback = FALLBACK
        if not files or (fallback is not None and fallback not in files):
            raise PublishedPathError
        publication = Publication(number, root, fallback, cause.at)
        async for _ in ConflictRetries():
            preview = await self._previews.get(project_id, account_id, writable=True)
            size = sum(len(each.content) for each in await self.store.files(project_id))
            size += sum(len(content) for content in files.values())
            quota = await self.store.read_file_quota(
                FileQuota(account_id, project_id, size, self.bytes_per_account)
            )
            before = await self.store.publication(project_id)
            found = replace(publication, domains=before.domains if before else ())
            changed = model.publish(preview, number, quota=quota, cause=cause)
            if await self._write(changed, PublicationChange(found, files)):
                return found
        raise PreviewBusyError

    async def unpublish(self, project_id: str, *, account_id: str, actor: str) -> None:
        """Nothing if it is not published."""
        cause = Cause.by(actor, self.clock)
        async for _ in ConflictRetries():
            preview = await self._previews.get(project_id, account_id, writable=True)
            if await self.store.publication(project_id) is None:
                return
            changed = model.unpublish(preview, cause=cause)
            if await self._write(changed, PublicationChange(None, {})):
                return
        raise PreviewBusyError

    async def get(self, project_id: str, *, account_id: str) -> Publication:
        """Raises NotPublishedError."""
        await self._previews.get_project(project_id, account_id)
        found = await self.store.publication(project_id)
        if found is None:
            raise NotPublishedError
        return found

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
