"""Projects, and what may be done with one, decided without any I/O."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict

from sandyard.platform.projects.errors import DefaultProjectError, ProjectArchivedError

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


class ProjectChanges(TypedDict, total=False):
    """What is left out stays as it is."""

    name: str
    description: str | None


@dataclass(frozen=True, slots=True)
class Project:
    project_id: str
    name: str
    description: str | None
    owner_account_id: str
    status: ProjectStatus
    is_default: bool
    created_at: datetime
    updated_at: datetime

    def require_writable(self) -> None:
        """An archived project is read-only until it is taken back."""
        if self.status is ProjectStatus.ARCHIVED:
            raise ProjectArchivedError

    def require_dispensable(self) -> None:
        """The default project stays: something must hold what names no project."""
        if self.is_default:
            raise DefaultProjectError


@dataclass(frozen=True, slots=True)
class ProjectFilter:
    search: str | None = None
    status: ProjectStatus | None = None
    is_default: bool | None = None


def new_project(
    *,
    project_id: str,
    name: str,
    description: str | None,
    owner_account_id: str,
    now: datetime,
    is_default: bool = False,
) -> Project:
    return Project(
        project_id=project_id,
        name=name,
        description=description,
        owner_account_id=owner_account_id,
        status=ProjectStatus.ACTIVE,
        is_default=is_default,
        created_at=now,
        updated_at=now,
    )


def default_project(*, project_id: str, owner_account_id: str, now: datetime) -> Project:
    """The project that every account begins with."""
    return new_project(
        project_id=project_id,
        name=DEFAULT_NAME,
        description=None,
        owner_account_id=owner_account_id,
        now=now,
        is_default=True,
    )
