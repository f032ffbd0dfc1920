"""What is told of a page, by the events of its browser."""

from typing import Any

from sandyard.previews.look.model import ConsoleMessage, FailedRequest, PageEvents


def sent(number: int) -> dict[str, Any]:
    return {"requestId": f"{number}", "request": {"method": "GET", "url": f"http://page/{number}"}}


def test_a_page_is_quiet_once_it_is_loaded_and_nothing_is_in_flight() -> None:
    events = PageEvents()
    events.note("Network.requestWillBeSent", sent(1))
    events.note("Page.loadEventFired", {})
    assert not events.is_quiet
    events.note("Network.loadingFinished", {"requestId": "1"})
    assert events.is_quiet


def test_requests_fail_by_their_status_or_without_a_response() -> None:
    events = PageEvents()
    for number in range(3):
        events.note("Network.requestWillBeSent", sent(number))
    response = {"status": 404, "statusText": "Not Found"}
    events.note("Network.responseReceived", {"requestId": "0", "response": response})
    events.note("Network.loadingFailed", {"requestId": "1", "errorText": "net::ERR_FAILED"})
    events.note("Network.loadingFailed", {"requestId": "2", "errorText": "x", "canceled": True})
    assert events.failures == [
        FailedRequest("http://page/0", "GET", 404, "Not Found"),
        FailedRequest("http://page/1", "GET", None, "net::ERR_FAILED"),
    ]


def test_the_console_has_messages_and_exceptions_and_is_bounded() -> None:
    events = PageEvents()
    words = [{"type": "string", "value": "a"}, {"type": "object", "description": "Object"}]
    events.note("Runtime.consoleAPICalled", {"type": "warning", "args": words})
    thrown = {"text": "Uncaught", "exception": {"description": "Error: x"}}
    events.note("Runtime.exceptionThrown", {"exceptionDetails": thrown})
    entry = {"source": "network", "level": "error", "text": "told by the request"}
    events.note("Log.entryAdded", {"entry": entry})
    expected = [ConsoleMessage("warning", "a Object"), ConsoleMessage("error", "Error: x")]
    assert events.console == expected
    long = {"type": "log", "args": [{"type": "string", "value": "x" * 9999}]}
    for _ in range(200):
        events.note("Runtime.consoleAPICalled", long)
    assert len(events.console) == 100
    assert len(events.console[-1].text) == 2000
