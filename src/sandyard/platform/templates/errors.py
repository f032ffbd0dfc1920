"""What can go wrong with a template, each with a stable code."""

from sandyard.kit.errors import ConflictError, ForbiddenError, NotFoundError


class TemplateNotFoundError(NotFoundError):
    """There is no template with this id, or it is somebody's private one. List the templates."""

    code = "TEMPLATE_NOT_FOUND"


class TemplateNameTakenError(ConflictError):
    """There is a template with this name, yours or official. Choose another."""

    code = "TEMPLATE_NAME_TAKEN"


class TemplateReadOnlyError(ForbiddenError):
    """This template is not yours to change. Make one of your own."""

    code = "TEMPLATE_READ_ONLY"


class OfficialTemplateError(ForbiddenError):
    """Only admins make official templates. Make a public one."""

    code = "OFFICIAL_TEMPLATE"


class EnvironmentUnknownError(ConflictError):
    """There is no environment of this name here. Name one that there is, or leave it out."""

    code = "ENVIRONMENT_UNKNOWN"


class TemplatesLimitError(ConflictError):
    """You have as many templates as your account may have. Delete one first."""

    code = "TEMPLATES_LIMIT_EXCEEDED"


class WarmMachinesError(ForbiddenError):
    """Only admins keep machines warm. Leave `warm_machines` out, or ask one."""

    code = "WARM_MACHINES_REFUSED"


class TagUnknownError(NotFoundError):
    """The template has no build of this tag. List its tags, or name none."""

    code = "TEMPLATE_TAG_UNKNOWN"
