"""Reading and changing the files of projects, in versions."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sandyard.kit.changes.transitions import Cause, ConflictRetries, Transition
from sandyard.kit.clock import Clock, utc_time
from sandyard.kit.concurrency.tasks import KeyedLocks
from sandyard.previews import model
from sandyard.previews.errors import PreviewBusyError, VersionNotFoundError
from sandyard.previews.files import (
    ChangeSet,
    Difference,
    FileChanges,
    FileLimits,
    ProjectFile,
    Version,
    differences,
    different_files,
    erased_files,
    touched_paths,
)
from sandyard.previews.model import FileQuota, Preview
from sandyard.previews.ports import PreviewStore, Project, ProjectLookup
from sandyard.previews.projects import ProjectPreviews, require_project


@dataclass(frozen=True, slots=True)
class FilePolicy:
    limits: FileLimits
    bytes_per_account: int = 2**30


class ProjectFiles:
    """Every use case concerns a project of the given account, and raises
    PreviewProjectNotFoundError if the account has none with this id."""

    def __init__(
        self, store: PreviewStore, projects: ProjectLookup, *, clock: Clock, policy: FilePolicy
    ) -> None:
        self.limits = policy.limits
        self._store = store
        self._projects = projects
        self._previews = ProjectPreviews(store, projects)
        self._clock = clock
        self._policy = policy
        self._locks = KeyedLocks()

    async def list(
        self,
        project_id: str,
        *,
        account_id: str,
        version: int | None = None,
        paths: Collection[str] | None = None,
    ) -> tuple[int, Sequence[ProjectFile]]:
        """All files, or those at these paths, and their version. Raises VersionNotFoundError."""
        preview = await self._previews.get(project_id, account_id)
        files = await self._store.files(project_id, version=version, paths=paths)
        if version is None:
            return preview.files_version, files
        await self._require_version(project_id, version)
        return version, files

    async def versions(self, project_id: str, *, account_id: str) -> Sequence[Version]:
        """Those that are kept, newest first."""
        await self._previews.get_project(project_id, account_id)
        return await self._store.versions(project_id)

    async def compare(
        self, project_id: str, *, since: int, version: int, account_id: str
    ) -> Sequence[Difference]:
        """By path. Version 0 has no files. Raises VersionNotFoundError."""
        await self._previews.get_project(project_id, account_id)
        before, after = [
            await self._store.entries(project_id, version=each) if each else {}
            for each in (since, version)
        ]
        rewritten = [path for path in before.keys() & after.keys() if before[path] != after[path]]
        old, new = [
            {each.path: each.content for each in files}
            for files in [
                await self._store.files(project_id, version=each, paths=rewritten)
                for each in (since, version)
            ]
        ]
        for each in filter(None, (since, version)):
            await self._require_version(project_id, each)
        same = {path for path in rewritten if old.get(path) == new.get(path)}
        return differences(before, after, same)

    async def _require_version(self, project_id: str, version: int) -> None:
        """After it was read: until then all of it was kept."""
        if all(each.version != version for each in await self._store.versions(project_id)):
            raise VersionNotFoundError

    async def change(
        self,
        project_id: str,
        changes: ChangeSet,
        *,
        account_id: str,
        actor: str,
        message: str = "",
        expected_version: int | None = None,
    ) -> int:
        """The version of the files after the change set; unchanged if it changes nothing. Raises
        FileBytesLimitError, and FilesVersionError if the files do not have the expected version."""
        async with self._locks.of(project_id):
            async for _ in ConflictRetries():
                preview = await self._previews.get(project_id, account_id, writable=True)
                model.require_version(preview, expected_version)
                files = await self._different(project_id, changes, message)
                if files is None:
                    if await self._has_version(preview):
                        return preview.files_version
                    continue  # the files read belong to a later version
                quota = await self._quota(preview, files)
                transition = model.change_files(
                    preview, files, quota=quota, cause=Cause.by(actor, self._clock)
                )
                if await self._write(transition, files):
                    return transition.result.files_version
        raise PreviewBusyError

    async def restore(
        self, project_id: str, version: int, *, account_id: str, actor: str, message: str = ""
    ) -> int:
        """The new version, with the files of this one. Raises VersionNotFoundError."""
        _, files = await self.list(project_id, account_id=account_id, version=version)
        return await self.change(
            project_id,
            ChangeSet({each.path: each.content for each in files}, is_whole=True),
            account_id=account_id,
            actor=actor,
            message=message or f"Restored version {version}",
        )

    async def forget(self, project_id: str, *, keeps: int, account_id: str, actor: str) -> None:
        """Remove all versions but the last ones."""
        cause = Cause.by(actor, self._clock)
        files = FileChanges({}, (), at=cause.at, message=None, keeps=keeps)
        async for _ in ConflictRetries():
            preview = await self._previews.get(project_id, account_id, writable=True)
            if await self._write(model.forget_versions(preview, cause=cause), files):
                return
        raise PreviewBusyError

    async def _different(
        self, project_id: str, changes: ChangeSet, message: str
    ) -> FileChanges | None:
        there = await self._store.entries(project_id)
        paths = touched_paths(there, changes)
        wanted = None if len(paths) == len(there) else paths
        touched = await self._store.files(project_id, paths=wanted) if paths else ()
        return different_files(
            there,
            {each.path: each for each in touched},
            changes,
            limits=self._policy.limits,
            now=utc_time(self._clock.now()),
            message=message,
        )

    async def _quota(self, preview: Preview, files: FileChanges) -> FileQuota | None:
        """The quota for this change; None if no more is stored than before. If it would be
        exceeded, the files of deleted projects are erased first."""
        if files.added_bytes <= 0:
            return None
        limit = self._policy.bytes_per_account
        size = files.size_before + files.added_bytes
        about = FileQuota(preview.account_id, preview.project_id, size, limit)
        quota = await self._store.read_file_quota(about)
        if not quota.is_exceeded:
            return quota
        of_account = await self._store.with_files(preview.account_id)
        kept = {each.project_id: each for each in of_account}
        cause = Cause.by("system", self._clock, reason="the project is deleted")
        for project_id in await self._projects.deleted(kept):
            await erase_files(self._store, kept[project_id], cause=cause)
        return await self._store.read_file_quota(about)

    async def _write(self, transition: Transition[Preview], files: FileChanges) -> bool:
        """Only while the project is writable: it can't be archived until the files are written."""
        after = transition.result

        async def write(project: Project | None) -> bool:
            require_project(project, writable=True)
            return await self._store.apply(transition, files=files)

        return await self._projects.hold(after.account_id, after.project_id, write)

    async def _has_version(self, seen: Preview) -> bool:
        current = await self._store.find(seen.project_id)
        return current is None or current.files_version == seen.files_version


async def erase_files(store: PreviewStore, preview: Preview, *, cause: Cause) -> bool:
    """Of all versions. Returns whether nothing is left; False if the preview was changed
    meanwhile."""
    there = await store.entries(preview.project_id)
    if not there and not await store.versions(preview.project_id):
        return True
    files = erased_files(there, now=cause.at)
    return await store.apply(model.change_files(preview, files, cause=cause), files=files)
