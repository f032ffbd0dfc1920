"""The files of deleted projects: erased when the quota is used up, or their preview can't end."""

from collections.abc import Sequence
from typing import Protocol

from sandyard.kit.changes.transitions import Cause, Transition
from sandyard.previews.files import FileChanges, ProjectFile, erased_files
from sandyard.previews.model import FileQuota, Preview, change_files
from sandyard.previews.ports import PreviewStore, ProjectLookup


class ErasableFiles(Protocol):
    async def files(self, project_id: str) -> Sequence[ProjectFile]: ...

    async def apply(
        self, transition: Transition[Preview], *, files: FileChanges | None = None
    ) -> bool: ...


async def erase_files(store: ErasableFiles, preview: Preview, *, cause: Cause) -> bool:
    """Returns whether nothing is left; False if the preview was changed meanwhile."""
    there = {file.path: file.content for file in await store.files(preview.project_id)}
    files = erased_files(there, now=cause.at)
    if files is None:
        return True
    return await store.apply(change_files(preview, files, cause=cause), files=files)


class FileQuotas:
    """The quota for all files of an account."""

    def __init__(self, store: PreviewStore, projects: ProjectLookup, limit: int) -> None:
        self._store = store
        self._projects = projects
        self._limit = limit

    async def of(self, preview: Preview, files: FileChanges, *, cause: Cause) -> FileQuota | None:
        """The quota for this change; None if the files do not grow. If it would be exceeded, the
        files of deleted projects are erased first."""
        if not files.adds:
            return None
        about = FileQuota(preview.account_id, preview.project_id, files.size_after, self._limit)
        quota = await self._store.read_file_quota(about)
        if quota.is_exceeded:
            await self._erase_deleted(preview.account_id, cause.because("the project is deleted"))
            quota = await self._store.read_file_quota(about)
        return quota

    async def _erase_deleted(self, account_id: str, cause: Cause) -> None:
        kept = {each.project_id: each for each in await self._store.with_files(account_id)}
        for project_id in await self._projects.deleted(kept):
            await erase_files(self._store, kept[project_id], cause=cause)
