"""What can go wrong with the store of files."""

from sandyard.runtime.errors import RuntimeUnavailableError

_RETRY_SEC = 10


class StoreUnavailableError(RuntimeUnavailableError):
    """The store of files can't be reached, or does not accept them. Nothing is lost: files that it
    does not have yet stay on the sandbox's node, and are stored when it is back. Try again
    shortly."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason, retry_after=_RETRY_SEC)


class StoringError(StoreUnavailableError):
    """The sandbox's files are still being stored. Ask again shortly."""

    code = "STILL_STORING"


class ObjectDamagedError(RuntimeUnavailableError):
    """The stored files are missing or damaged, as their checksum shows. They are not used. Its
    operator can restore the object, which the log names, from a copy of the store."""

    code = "STORED_FILES_DAMAGED"
