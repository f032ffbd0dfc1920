"""Server-sent events, in whatever pieces they come."""

import pytest
from sandyard_client.server_events import ServerEvent, ServerEvents

STREAM = (
    b'event: stdout\nid: 6\ndata: {"data": "h\xc3\xa4llo"}\n\n'
    b": still running\n\n"
    b'event: exit\r\ndata: {"exit_code": 0}\r\n\r\n'
)


@pytest.mark.parametrize("size", [1, 7, len(STREAM)])
def test_events_are_parsed_from_pieces_of_any_size(size: int) -> None:
    events = ServerEvents()
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [event for piece in pieces for event in events.feed(piece)] == [
        ServerEvent("stdout", "6", {"data": "hällo"}),
        ServerEvent("exit", "", {"exit_code": 0}),
    ]
