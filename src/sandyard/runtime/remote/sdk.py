"""The parts' access to E2B's SDK: connecting, mapping its errors, uploading files in batches.

The SDK is the extra `e2b`. It is imported on first use, as the import is slow.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

import httpx

from sandyard.kit.errors import SandyardError
from sandyard.runtime.remote.backoff import BackingOffError, Backoff, Refusal

if TYPE_CHECKING:
    from e2b import AsyncSandbox, SandboxInfo

Trouble = Literal[
    "gone", "rate_limited", "key_refused", "failed", "unreachable", "timeout", "other"
]

SHORTEST_SEC = 1
_PLAIN_PATH = re.compile(r"[^\"%\\\x00-\x1f\x7f]+")
"""A path that is preserved as the file name in a multipart body."""
_FILES_AT_ONCE = 50
_BYTES_AT_ONCE = 16 << 20
_RETRY_AFTER_SEC = 5
_PATIENCE_SEC = 10.0
"""The longest wait before a call may be sent, however long the call itself may take."""


def open_sandboxes(
    api_key: str, *, api_url: str | None, sandbox_url: str | None
) -> "type[AsyncSandbox]":
    """The SDK for this key. URLs default to E2B's own. Raises ImportError if the SDK is not
    installed."""
    from e2b import E2B

    client = E2B(
        api_key=api_key,
        api_url=api_url,
        sandbox_url=sandbox_url,
        debug=False,
        request_timeout=0,  # timeouts are enforced here: the SDK waits twice as long, or forever
        retries=0,  # errors are reported at once, and a create is never sent twice
    )
    sandboxes: type[AsyncSandbox] = client.AsyncSandbox
    return sandboxes


def public_url(info: "SandboxInfo", *, port: int, scheme: str) -> str:
    """The public URL of a port of the sandbox."""
    from e2b import ConnectionConfig

    config = ConnectionConfig(debug=False)
    domain = info.sandbox_domain or config.domain
    return f"{scheme}://{config.get_host(info.sandbox_id, domain, port)}"


@asynccontextmanager
async def translated(
    within_sec: float | None,
    translation: Callable[[Exception], SandyardError],
    *but: type[Exception],
    backoff: Backoff | None = None,
) -> AsyncIterator[None]:
    """Translate the SDK's errors to ours, except those in `but`, which the caller handles. None
    means no time limit. With `backoff`, wait until it allows the call."""
    try:
        async with asyncio.timeout(within_sec):
            if backoff is None:
                yield
            else:
                async with _backing_off(backoff, min(within_sec or _PATIENCE_SEC, _PATIENCE_SEC)):
                    yield
    except Exception as error:
        if isinstance(error, (SandyardError, *but)):
            raise
        raise translation(error) from error


@asynccontextmanager
async def _backing_off(backoff: Backoff, within_sec: float) -> AsyncIterator[None]:
    await backoff.wait(within_sec=within_sec)
    sent_at = backoff.sending_at()
    try:
        yield
    except Exception as error:
        if (refusal := refusal_of(error)) is not None:
            wait_sec = named_retry_after(error)
            backoff.refused(refusal, retry_after=wait_sec, sent_at=sent_at)
        raise
    backoff.answered()


def trouble_of(error: Exception) -> Trouble:
    """Classify the SDK's error. A sandbox is gone only if E2B says so explicitly."""
    import e2b
    from connectrpc.errors import ConnectError

    status = error.status_code if isinstance(error, e2b.SandboxException) else None
    match error:
        case BackingOffError(refusal=refusal):
            return refusal
        case e2b.SandboxNotFoundException():
            return "gone"
        case e2b.RateLimitException():
            return "rate_limited"
        case e2b.AuthenticationException():
            return "key_refused"
        case e2b.SandboxUnreachableException() | e2b.SandboxNotRunningException():
            return "unreachable"
        case e2b.TimeoutException() | httpx.TimeoutException() | TimeoutError():
            return "timeout"
        case httpx.TransportError() | ConnectError() | OSError():
            return "unreachable"
        case e2b.SandboxException() if status in (401, 403):
            return "key_refused"
        case e2b.SandboxException() | e2b.ServiceBusyException() if _is_servers_fault(
            error, status
        ):
            return "failed"
        case _:
            return "other"


def refusal_of(error: Exception) -> Refusal | None:
    """Whether to back off: a 429 or 5xx. The proxy in front of a sandbox also returns 5xx while it
    can't reach the sandbox; its answer that there is no such sandbox is not a refusal."""
    import e2b

    trouble = trouble_of(error)
    if trouble == "rate_limited" or trouble == "failed":
        return trouble
    return "failed" if isinstance(error, e2b.SandboxUnreachableException) else None


def reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def retry_after(error: Exception) -> int:
    """Seconds to wait: from the response, or a default."""
    if isinstance(error, BackingOffError):
        return error.retry_after
    named = named_retry_after(error)
    return _RETRY_AFTER_SEC if named is None else named


def named_retry_after(error: Exception) -> int | None:
    """The seconds given in the response. The SDK drops them, but the response is still in the frame
    that raised the error."""
    from e2b.retry import parse_retry_after

    trace = error.__traceback__
    while trace is not None:
        for name in ("res", "r"):
            headers = getattr(trace.tb_frame.f_locals.get(name), "headers", {})
            if (seconds := parse_retry_after(headers.get("Retry-After"))) is not None:
                return seconds
        trace = trace.tb_next
    return None


def uploads(files: Mapping[str, bytes]) -> Iterator[Sequence[str]]:
    """Groups of paths to send together: limited in size, and an unusual path on its own."""
    together: list[str] = []
    size = 0
    for path in sorted(files):
        if not _PLAIN_PATH.fullmatch(path):
            yield [path]
            continue
        if together and (
            len(together) == _FILES_AT_ONCE or size + len(files[path]) > _BYTES_AT_ONCE
        ):
            yield together
            together, size = [], 0
        together.append(path)
        size += len(files[path])
    if together:
        yield together


async def upload(sandbox: "AsyncSandbox", files: Mapping[str, bytes]) -> None:
    """Write the files to their paths inside the sandbox."""
    from e2b.sandbox.filesystem.filesystem import WriteEntry

    for paths in uploads(files):
        await sandbox.files.write_files([WriteEntry(path=path, data=files[path]) for path in paths])


def utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def _is_servers_fault(error: Exception, status: int | None) -> bool:
    """Errors of the sandbox's own server have neither a status nor a distinct class."""
    from e2b import SandboxException, ServiceBusyException

    if isinstance(error, ServiceBusyException):
        return True
    return type(error) is SandboxException if status is None else status >= 500
