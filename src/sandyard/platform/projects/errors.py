"""What can go wrong with a project, each with a stable code."""

from sandyard.kit.errors import ConflictError, NotFoundError


class ProjectNotFoundError(NotFoundError):
    """You have no project with this id. List your projects to find it."""


class ProjectNameTakenError(ConflictError):
    """You have a project with this name. Choose another."""


class ProjectsLimitError(ConflictError):
    """Your account is at its limit of projects. Delete one first."""

    code = "PROJECTS_LIMIT_EXCEEDED"


class ProjectArchivedError(ConflictError):
    """The project is archived and therefore read-only. Unarchive it first."""


class DefaultProjectError(ConflictError):
    """The default project can't be archived or deleted. Make another the default first."""

    code = "PROJECT_IS_DEFAULT"


class ProjectInUseError(ConflictError):
    """The project has sandboxes or volumes. Recycle and delete them, or archive the project
    instead."""
