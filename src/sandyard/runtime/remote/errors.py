"""How a call to a machine elsewhere, or to the service that runs it, fails."""

from collections.abc import Callable
from math import ceil
from typing import Literal

from sandyard.kit.errors import SandyardError

Refusal = Literal["rate_limited", "failed"]
Trouble = Literal[
    "gone",
    "not_found",
    "rate_limited",
    "key_refused",
    "failed",
    "unreachable",
    "timeout",
    "other",
]
"""`gone`: the service says that it no longer has this machine. `not_found` is any other 404."""
_RETRY_AFTER_SEC = 5


class CallError(Exception):
    """A call without a valid response. `status` and `code` are those of the response, if any; with
    a `code`, the machine's own server refused the call."""

    def __init__(
        self,
        trouble: Trouble,
        reason: str,
        *,
        status: int | None = None,
        code: str = "",
        retry_after: int | None = None,
        was_sent: bool = True,
    ) -> None:
        super().__init__(reason)
        self.trouble = trouble
        self.reason = reason
        self.status = status
        self.code = code
        self.named_retry_after = retry_after
        self.was_sent = was_sent

    @property
    def refusal(self) -> Refusal | None:
        """Whether to back off: after a 429 or 5xx."""
        if self.trouble == "rate_limited" or self.trouble == "failed":
            return self.trouble
        return None

    @property
    def retry_after(self) -> int:
        """Seconds to wait: from the response, or a default."""
        return _RETRY_AFTER_SEC if self.named_retry_after is None else self.named_retry_after


class BackingOffError(CallError):
    """The service is not called now: its last refusal was a moment ago."""

    def __init__(self, refusal: Refusal, left_sec: float) -> None:
        reason = f"the next call may be sent in {left_sec:.1f} s"
        super().__init__(refusal, reason, retry_after=ceil(left_sec), was_sent=False)


Translate = Callable[[CallError], SandyardError]
"""A failed call as an error of the caller's part."""
