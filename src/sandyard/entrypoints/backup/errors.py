"""Why a backup can't be made or restored."""

from sandyard.kit.errors import SandyardError


class BackupError(SandyardError):
    """The backup could not be made or restored."""

    code = "BACKUP_FAILED"


class ArchiveInvalidError(BackupError):
    """The file is no backup, or was damaged. Use another."""


class DataDirNotEmptyError(BackupError):
    """There is something in the data dir. Choose another --data-dir, or empty it."""
