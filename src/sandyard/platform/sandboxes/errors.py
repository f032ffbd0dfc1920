"""What can go wrong with a sandbox, each with the code that callers rely on."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError
from sandyard.kit.node import ElsewhereError


class SandboxUnknownError(NotFoundError):
    """You have no sandbox with this id. List yours to find it."""

    code = "SANDBOX_UNKNOWN"


class SandboxNameTakenError(ConflictError):
    """You have a sandbox of this name. Choose another, or recycle that one first."""

    code = "SANDBOX_NAME_TAKEN"


class SandboxRecycledError(ConflictError):
    """This sandbox was recycled for good. Make a new one."""

    code = "SANDBOX_RECYCLED"


class SandboxBusyError(ConflictError):
    """Its resources can't be changed while it runs. Stop it first."""

    code = "SANDBOX_ACTIVE"


class SandboxChangedError(ConflictError):
    """The sandbox changed again and again while this was done. Look at it, and try again."""

    code = "SANDBOX_CHANGED"


class ResourcesTooSmallError(InvalidError):
    """The template needs more than this."""

    code = "RESOURCES_TOO_SMALL"


class TemplateNotUsableError(InvalidError):
    """There is no such template that you may use. List the templates to find one."""

    code = "TEMPLATE_NOT_USABLE"


class ProjectNotUsableError(InvalidError):
    """You have no such project. List yours to find one."""

    code = "PROJECT_NOT_USABLE"


class ProjectReadOnlyError(ConflictError):
    """The project is archived, and so are its sandboxes: they can be looked at and stopped."""

    code = "PROJECT_READ_ONLY"


class QuotaExceededError(ConflictError):
    """Your running sandboxes take all that your account may have. Stop one first."""

    code = "QUOTA_EXCEEDED"


class SandboxesLimitError(ConflictError):
    """You have as many sandboxes, running or not, as your account may have. Recycle one first."""

    code = "SANDBOXES_LIMIT_EXCEEDED"


class NeverStartedError(ConflictError):
    """It has not run yet, so there is nothing to show. Start it first."""

    code = "NEVER_STARTED"


class SandboxElsewhereError(ElsewhereError):
    """Another node runs this sandbox or has its files. Ask the server there; if it is gone for
    good, an admin calls `POST /api/v1/admin/sandboxes/{id}/end`. Nothing was changed."""

    code = "SANDBOX_ELSEWHERE"
