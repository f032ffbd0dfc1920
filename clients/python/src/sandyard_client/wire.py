"""Requests and responses, independent of any HTTP library."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

from sandyard_client.errors import ApiError, UnexpectedAnswerError, error_class

Query = Mapping[str, str | int | float | bool | None]
Content = Callable[[], Iterator[bytes]]
"""Returns the whole body each time it is called, so that a request can be sent again."""


class Credential(StrEnum):
    """Which of a connection's credentials a call needs."""

    NONE = "none"
    TRACK = "track"
    ADMIN = "admin"
    TELEMETRY = "telemetry"
    DEVICE = "device"
    ACCOUNT = "account"


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    credential: Credential = Credential.NONE
    is_repeatable: bool = False
    """Whether sending it twice has the same effect as sending it once."""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Query = field(default_factory=dict)
    json: Any = None
    content: Content | None = None
    size: int | None = None
    """Size of the content in bytes, if known."""
    timeout_sec: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """With names in lower case."""
    body: bytes = b""

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """UnexpectedAnswerError if it is not JSON: a proxy or another program responded."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError as error:
            message = (
                f"The answer ({self.status}) is no JSON: is the URL that of a Sandyard server?"
            )
            raise UnexpectedAnswerError(message) from error

    @property
    def server_time(self) -> datetime | None:
        """The server's clock when it responded."""
        return _http_date(self.headers.get("date", ""))

    def retry_after(self, now: datetime) -> float | None:
        """Seconds that the server asks to wait: from a number or a date (RFC 9110)."""
        sent = self.headers.get("retry-after", "").strip()
        if sent.isascii() and sent.isdigit():
            return float(sent)
        until = _http_date(sent)
        return None if until is None else max(0.0, (until - now).total_seconds())

    def error(self) -> ApiError:
        """As reported by the server; a proxy's response has no code, so its status is used."""
        told = _error_of(self.body)
        code = str(told.get("code") or f"HTTP_{self.status}")
        return error_class(self.status, code)(
            status=self.status,
            code=code,
            message=str(told.get("message") or self._told_by_status()),
            request_id=told.get("request_id") or self.headers.get("x-request-id"),
            retry_after=self.retry_after(datetime.now(UTC)),
            details=told.get("details") or {},
        )

    def _told_by_status(self) -> str:
        target = self.headers.get("location")
        leads = f", and to {target}: use that URL" if 300 <= self.status < 400 and target else ""
        return f"The server answered {self.status}{leads}."


@dataclass(frozen=True, slots=True)
class Lost:
    """There was no response."""

    reason: str
    was_sent: bool
    """Whether the server may have received the request."""


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text).astimezone(UTC)
    except (TypeError, ValueError):
        return None


def _error_of(body: bytes) -> Mapping[str, Any]:
    """Also that of E2B's API, which has a message and no code of its own."""
    try:
        whole = json.loads(body)
        told = whole["error"] if "error" in whole else {"message": whole["message"]}
    except (ValueError, KeyError, TypeError):
        return {}
    return told if isinstance(told, dict) else {}
