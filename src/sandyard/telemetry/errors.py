"""What can go wrong with a call of a device or an operator, each with a stable code."""

from sandyard.kit.errors import InvalidError, NotFoundError, UnauthorizedError, UnavailableError


class InvalidApiKeyError(UnauthorizedError):
    """The API key is missing, unknown or revoked. Send a valid one as `X-API-Key` or as a bearer
    token."""

    scheme = "ApiKey"


class DeviceNotFoundError(NotFoundError):
    """No device with this hardware id is registered. The device must call `register` first."""


class DeviceBusyError(UnavailableError):
    """The device or key kept changing during this call. Try again shortly."""


class NoReadingsError(NotFoundError):
    """The device has no reading within the retention. Wait until it sends one."""


class ApiKeyNotFoundError(NotFoundError):
    """There is no API key with this id. List the keys to find it."""


class BatchSizeExceededError(InvalidError):
    """The request has more than 100 readings; none was stored. Send at most 100 at a time."""


class EmptyBatchError(InvalidError):
    """The request has no reading. Send one reading, or `readings` with 1 to 100 of them."""


class InvalidRangeError(InvalidError):
    """`from` is after `to`. Both are epoch milliseconds, and both are inclusive."""


class TooManyBucketsError(InvalidError):
    """The range has more than 10,000 buckets. Use a longer `bucket` or a shorter range."""


class FormatNotInstalledError(InvalidError):
    """This server was installed without Parquet. Request csv, or install `sandyard[parquet]`."""
