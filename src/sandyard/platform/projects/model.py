"""Projects, and the decisions about them, without any I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from sandyard.kit.changes.transitions import Cause, Transition, changed, created
from sandyard.platform.entities.model import FieldChanges, updated
from sandyard.platform.projects import errors
from sandyard.platform.quotas.model import CountQuota

DEFAULT_NAME = "Default"


class ProjectStatus(StrEnum):
    ACTIVE = "active"
    ARCHIVED = "archived"


class ProjectSort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_REVERSED = "-name"
    CHANGED = "-updated_at"


@dataclass(frozen=True, slots=True)
class Project:
    SUBJECT: ClassVar[str] = "project_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    project_id: str
    name: str
    description: str | None
    owner_account_id: str
    status: ProjectStatus
    is_default: bool
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    sequence: int = 0

    @property
    def is_archived(self) -> bool:
        return self.status is ProjectStatus.ARCHIVED

    def require_writable(self) -> None:
        """An archived project is read-only until it is unarchived."""
        if self.is_archived:
            raise errors.ProjectArchivedError

    def require_dispensable(self) -> None:
        """The default project can't go: sandboxes without a named project need it."""
        if self.is_default:
            raise errors.DefaultProjectError


@dataclass(frozen=True, slots=True)
class ProjectFilter:
    search: str | None = None
    status: ProjectStatus | None = None
    is_default: bool | None = None


@dataclass(frozen=True, slots=True)
class ProjectContents:
    """A fact: whether the project has sandboxes that are not recycled, or volumes."""

    project_id: str
    has_sandboxes: bool = False


@dataclass(frozen=True, slots=True)
class ProjectUse:
    """A fact that is always true: deciding from it waits for those who add something to the
    project."""

    project_id: str


def create_project(
    *,
    project_id: str,
    account_id: str,
    name: str,
    description: str | None,
    quota: CountQuota,
    cause: Cause,
) -> Transition[Project]:
    quota.require(errors.ProjectsLimitError)
    project = _new_project(project_id, account_id, name, description, cause)
    return created(project, "project.created", cause, preconditions=(quota,))


def create_default_project(
    *, project_id: str, account_id: str, cause: Cause
) -> Transition[Project]:
    project = _new_project(project_id, account_id, DEFAULT_NAME, None, cause)
    return created(replace(project, is_default=True), "project.created", cause)


def update_project(
    project: Project, changes: FieldChanges, cause: Cause
) -> Transition[Project] | None:
    project.require_writable()
    return updated(project, replace(project, **changes), "project.updated", cause)


def archive_project(project: Project, cause: Cause) -> Transition[Project] | None:
    project.require_dispensable()
    archived = replace(project, status=ProjectStatus.ARCHIVED)
    use = ProjectUse(project.project_id)
    return updated(project, archived, "project.archived", cause, preconditions=(use,))


def unarchive_project(project: Project, cause: Cause) -> Transition[Project] | None:
    active = replace(project, status=ProjectStatus.ACTIVE)
    return updated(project, active, "project.unarchived", cause)


def make_default(
    project: Project, former: Project | None, cause: Cause
) -> Sequence[Transition[Project]]:
    """Of the previous default project, then of this one; applied together and in this order, so
    that there is never more than one. ProjectArchivedError."""
    project.require_writable()
    if project.is_default:
        return []
    default = replace(project, is_default=True, updated_at=cause.at)
    made = changed(project, default, "project.made_default", cause)
    return [made] if former is None else [_no_default(former, project.project_id, cause), made]


def delete_project(
    project: Project, contents: ProjectContents, cause: Cause
) -> Transition[Project]:
    """DefaultProjectError; ProjectInUseError while it has sandboxes or volumes."""
    project.require_dispensable()
    if contents.has_sandboxes:
        raise errors.ProjectInUseError
    deleted = replace(project, deleted_at=cause.at, updated_at=cause.at)
    return changed(project, deleted, "project.deleted", cause, preconditions=(contents,))


def close_project(project: Project, cause: Cause) -> Transition[Project]:
    """For a deleted account, whose sandboxes are recycled: even the default project is deleted."""
    closed = replace(project, is_default=False, deleted_at=cause.at, updated_at=cause.at)
    return changed(project, closed, "project.deleted", cause)


def _new_project(
    project_id: str, account_id: str, name: str, description: str | None, cause: Cause
) -> Project:
    return Project(
        project_id=project_id,
        name=name,
        description=description,
        owner_account_id=account_id,
        status=ProjectStatus.ACTIVE,
        is_default=False,
        created_at=cause.at,
        updated_at=cause.at,
    )


def _no_default(project: Project, successor: str, cause: Cause) -> Transition[Project]:
    after = replace(project, is_default=False, updated_at=cause.at)
    return changed(
        project, after, "project.updated", cause.because(f"{successor} was made the default")
    )
