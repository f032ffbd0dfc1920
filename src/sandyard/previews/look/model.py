"""What a browser shows of a page, from the events of its DevTools protocol, without any I/O."""

from dataclasses import dataclass, field
from typing import Any

_MOST_MESSAGES = 100
_MOST_FAILURES = 50
_LONGEST_TEXT = 2000


@dataclass(frozen=True, slots=True)
class Viewport:
    width: int = 1280
    height: int = 800


@dataclass(frozen=True, slots=True)
class ConsoleMessage:
    level: str
    """`log`, `info`, `warning`, `error`, …; an exception that nothing caught is an `error`."""
    text: str


@dataclass(frozen=True, slots=True)
class FailedRequest:
    url: str
    method: str
    status: int | None
    """None if there was no response."""
    error: str


@dataclass(frozen=True, slots=True)
class Look:
    """`is_complete` unless the page was still busy at the time limit; then there may be no
    screenshot."""

    url: str
    title: str
    screenshot: bytes | None
    """A PNG."""
    console: tuple[ConsoleMessage, ...]
    failed_requests: tuple[FailedRequest, ...]
    is_complete: bool


@dataclass(slots=True)
class PageEvents:
    """What a page has done so far."""

    console: list[ConsoleMessage] = field(default_factory=list)
    failures: list[FailedRequest] = field(default_factory=list)
    is_loaded: bool = False
    _requests: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Those in flight: method and URL."""

    @property
    def is_quiet(self) -> bool:
        return self.is_loaded and not self._requests

    def note(self, event: str, about: dict[str, Any]) -> None:
        match event:
            case "Page.loadEventFired":
                self.is_loaded = True
            case "Runtime.consoleAPICalled":
                self._say(about["type"], " ".join(map(_text_of, about["args"])))
            case "Runtime.exceptionThrown":
                thrown = about["exceptionDetails"]
                self._say("error", thrown.get("exception", {}).get("description", thrown["text"]))
            case "Log.entryAdded" if about["entry"]["source"] != "network":
                self._say(about["entry"]["level"], about["entry"]["text"])
            case "Network.requestWillBeSent":
                sent = about["request"]
                self._requests[about["requestId"]] = (sent["method"], sent["url"][:_LONGEST_TEXT])
            case "Network.responseReceived" if about["response"]["status"] >= 400:
                found = about["response"]
                self._fail(about["requestId"], found["status"], found["statusText"])
            case "Network.loadingFailed" if not about.get("canceled"):
                self._fail(about["requestId"], None, about["errorText"])
        if event in ("Network.loadingFinished", "Network.loadingFailed"):
            self._requests.pop(about["requestId"], None)

    def _say(self, level: str, text: str) -> None:
        if len(self.console) < _MOST_MESSAGES:
            self.console.append(ConsoleMessage(level, text[:_LONGEST_TEXT]))

    def _fail(self, request_id: str, status: int | None, error: str) -> None:
        method, url = self._requests.get(request_id, ("GET", ""))
        if url and len(self.failures) < _MOST_FAILURES:
            self.failures.append(FailedRequest(url, method, status, error))


def _text_of(argument: dict[str, Any]) -> str:
    return str(argument.get("value", argument.get("description", argument["type"])))
