"""The Python client of Sandyard: leases, sandboxes and devices, sync and async."""

from sandyard_client.client import AsyncClient, Client
from sandyard_client.commands import AsyncCommand, Command
from sandyard_client.connection import Connection
from sandyard_client.device_flows import Delivery
from sandyard_client.devices import AsyncDevice, Device
from sandyard_client.errors import (
    ApiError,
    BufferFullError,
    BufferUnusableError,
    CommandFailedError,
    ConfigurationError,
    ConflictError,
    ConnectionFailedError,
    ForbiddenError,
    InvalidError,
    LeaseLostError,
    NoSandboxesAvailableError,
    NotFoundError,
    RateLimitedError,
    SandyardClientError,
    UnauthorizedError,
    UnavailableError,
    UncertainOutcomeError,
    UnexpectedAnswerError,
)
from sandyard_client.leases import AsyncLease, Lease
from sandyard_client.retrying import RetryPolicy
from sandyard_client.sandbox_flows import CommandOutput, CommandResult
from sandyard_client.sandboxes import AsyncSandbox, Sandbox
from sandyard_client.wire import Credential, Request

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncCommand",
    "AsyncDevice",
    "AsyncLease",
    "AsyncSandbox",
    "BufferFullError",
    "BufferUnusableError",
    "Client",
    "Command",
    "CommandFailedError",
    "CommandOutput",
    "CommandResult",
    "ConfigurationError",
    "ConflictError",
    "Connection",
    "ConnectionFailedError",
    "Credential",
    "Delivery",
    "Device",
    "ForbiddenError",
    "InvalidError",
    "Lease",
    "LeaseLostError",
    "NoSandboxesAvailableError",
    "NotFoundError",
    "RateLimitedError",
    "Request",
    "RetryPolicy",
    "Sandbox",
    "SandyardClientError",
    "UnauthorizedError",
    "UnavailableError",
    "UncertainOutcomeError",
    "UnexpectedAnswerError",
]
