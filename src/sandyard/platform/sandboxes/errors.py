"""What can go wrong with a sandbox, each with the code that callers rely on."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError, UnavailableError
from sandyard.kit.node import ElsewhereError


class SandboxUnknownError(NotFoundError):
    """You have no sandbox with this id. List your sandboxes to find it."""


class SandboxNameTakenError(ConflictError):
    """You have a sandbox with this name. Choose another, or recycle that one first."""


class SandboxRecycledError(ConflictError):
    """This sandbox was recycled and is gone. Create a new one."""


class SandboxBusyError(ConflictError):
    """Its resources can't be changed while it runs. Stop it first."""

    code = "SANDBOX_ACTIVE"


class SandboxChangedError(ConflictError):
    """The sandbox kept changing during this call. Check its state, and try again."""


class ResourcesTooSmallError(InvalidError):
    """The template needs more resources."""


class TemplateNotUsableError(InvalidError):
    """There is no such template, or you may not use it. List the templates to find one."""


class ProjectNotUsableError(InvalidError):
    """You have no such project. List your projects to find one."""


class OwnerInactiveError(ConflictError):
    """The sandbox's account is deactivated: nothing starts it until an admin activates the account
    again."""


class ProjectReadOnlyError(ConflictError):
    """The project is archived. Its sandboxes can only be viewed and stopped."""


class QuotaExceededError(ConflictError):
    """This would exceed your account's quota. Stop a sandbox, or delete what you do not need."""


class SandboxesLimitError(ConflictError):
    """Your account is at its limit of sandboxes, running or not. Recycle one first."""

    code = "SANDBOXES_LIMIT_EXCEEDED"


class NeverStartedError(ConflictError):
    """The sandbox has not run yet, so there is nothing to show. Start it first."""


class FilesNotStoredError(UnavailableError):
    """The changed files could not be stored; they are as before. Try again shortly."""


class FilesBusyError(ConflictError):
    """Another call uses the files of a stopped sandbox or a volume of yours. Try again when it has
    ended, or start the sandbox."""


class NoProgramError(ConflictError):
    """This sandbox has no program: its template names none. Run commands in it instead."""


class SandboxElsewhereError(ElsewhereError):
    """Another node runs this sandbox or has its files. Call the server there; if that node is gone
    for good, an admin can call `POST /api/v1/admin/sandboxes/{id}/end`. Nothing was changed."""
