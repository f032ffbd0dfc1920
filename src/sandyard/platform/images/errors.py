"""What can go wrong with an image of an account, each with a stable code."""

from sandyard.kit.errors import ConflictError, NotFoundError, RateLimitedError


class ImageNotFoundError(NotFoundError):
    """You have no image with this id. List your images to find it."""


class ImageNotReadyError(ConflictError):
    """The image is not ready. Wait until its status is `ready`; if it has failed, pull it again."""


class ImageInUseError(ConflictError):
    """Templates or sandboxes use this image. Delete them first."""


class ImagesLimitError(ConflictError):
    """Your account is at its limit of images. Delete one first."""

    code = "IMAGES_LIMIT_EXCEEDED"


class ImagesBudgetError(RateLimitedError):
    """Within two hours your account may store images of twice its quota of storage, deleted and
    failed ones among them. Wait for a while."""

    code = "IMAGES_BUDGET_EXCEEDED"


class ImagesUnavailableError(ConflictError):
    """Sandboxes of this server do not run from images."""


class SecretMissingError(NotFoundError):
    """The project has no secret with this name. Set it to `user:password` first."""

    code = "REGISTRY_SECRET_NOT_FOUND"
