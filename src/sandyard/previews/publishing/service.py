"""Publishing a version of a project's files, and unpublishing it."""

from dataclasses import dataclass

from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock
from sandyard.previews import model
from sandyard.previews.errors import NotPublishedError, PreviewBusyError, PublishedPathError
from sandyard.previews.files import Publication, PublicationChange, published_files
from sandyard.previews.model import FileQuota, Preview
from sandyard.previews.ports import PreviewStore, Project, ProjectLookup
from sandyard.previews.project_files import ProjectFiles
from sandyard.previews.projects import ProjectPreviews, require_project


@dataclass(frozen=True, slots=True)
class Publishing:
    """Every use case concerns a project of the given account, and raises
    PreviewProjectNotFoundError if the account has none with this id."""

    store: PreviewStore
    projects: ProjectLookup
    files: ProjectFiles
    clock: Clock
    bytes_per_account: int

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
        number, found = await self.files.list(project_id, account_id=account_id, version=version)
        files = published_files(found, root)
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
            changed = model.publish(preview, number, quota=quota, cause=cause)
            if await self._write(changed, PublicationChange(publication, files)):
                return publication
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

    @property
    def _previews(self) -> ProjectPreviews:
        return ProjectPreviews(self.store, self.projects)

    async def _write(self, transition: Transition[Preview], change: PublicationChange) -> bool:
        after = transition.result

        async def write(project: Project | None) -> bool:
            require_project(project, writable=True)
            return await self.store.apply(transition, publication=change)

        return await self.projects.hold(after.account_id, after.project_id, write)
