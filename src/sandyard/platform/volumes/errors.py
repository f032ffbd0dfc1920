"""What can go wrong with a volume, each with a stable code."""

from sandyard.kit.errors import ConflictError, InvalidError, NotFoundError
from sandyard.kit.node import ElsewhereError


class VolumeNotFoundError(NotFoundError):
    """You have no volume with this id. List your volumes to find it."""


class VolumeNameTakenError(ConflictError):
    """You have a volume with this name. Choose another, or delete that one first."""


class VolumesLimitError(ConflictError):
    """Your account is at its limit of volumes. Delete one first."""

    code = "VOLUMES_LIMIT_EXCEEDED"


class VolumeNotUsableError(InvalidError):
    """You have no volume with this name, or it belongs to another project than the sandbox. List
    your volumes to find one."""


class VolumeReadOnlyError(ConflictError):
    """This volume can only be mounted read-only. Make a copy of it that can be written."""


class VolumeMountedError(ConflictError):
    """A running sandbox has this volume mounted. Stop that sandbox first: a volume has one writer,
    or any number of readers."""


class VolumeElsewhereError(ElsewhereError):
    """Another node has the files of this volume. Call the server there; nothing was changed."""
