"""Server-sent events, parsed incrementally."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerEvent:
    kind: str
    id: str
    data: Any


class ServerEvents:
    """Feed it bytes in chunks of any size; it returns the complete events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[ServerEvent]:
        *blocks, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        parsed = [_parse(block) for block in blocks]
        return [event for event in parsed if event is not None]


def _parse(block: bytes) -> ServerEvent | None:
    values = {"event": "message", "id": "", "data": ""}
    for line in block.decode().split("\n"):
        name, _, value = line.partition(":")
        if name in values:
            values[name] = value.removeprefix(" ")
    if not values["data"]:
        return None
    return ServerEvent(values["event"], values["id"], json.loads(values["data"]))
