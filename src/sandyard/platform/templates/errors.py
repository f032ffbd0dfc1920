"""What can go wrong with a template, each with a stable code."""

from sandyard.kit.errors import ConflictError, ForbiddenError, NotFoundError


class TemplateNotFoundError(NotFoundError):
    """There is no template with this id, or it is private. List the templates."""


class TemplateNameTakenError(ConflictError):
    """There is a template with this name, yours or official. Choose another."""


class TemplateReadOnlyError(ForbiddenError):
    """You may not change this template. Create your own."""


class OfficialTemplateError(ForbiddenError):
    """Only admins can create official templates. Create a public one."""


class EnvironmentUnknownError(ConflictError):
    """There is no environment with this name. Use an existing one, or leave it out."""


class TemplatesLimitError(ConflictError):
    """Your account is at its limit of templates. Delete one first."""

    code = "TEMPLATES_LIMIT_EXCEEDED"


class WarmMachinesError(ForbiddenError):
    """Only admins may set `warm_machines`. Leave it out, or ask an admin."""

    code = "WARM_MACHINES_REFUSED"


class TagUnknownError(NotFoundError):
    """The template has no build with this tag. List its tags, or send none."""

    code = "TEMPLATE_TAG_UNKNOWN"
