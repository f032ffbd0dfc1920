"""Multipart forms, part by part as they arrive: none is stored before it is used."""

from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from sandyard.e2b_api.errors import InvalidRequestError

_NOT_A_FORM = "The body is not a multipart form."
_MOST_PARTS = 10_000


@dataclass(frozen=True, slots=True)
class Part:
    """`content` is read before the next part."""

    file_name: str | None
    content: AsyncIterator[bytes]


async def parts_of(content_type: str, pieces: AsyncIterator[bytes]) -> AsyncIterator[Part]:
    """Raises InvalidRequestError, and the errors of `pieces`."""
    form = _Form(content_type, pieces)
    count = 0
    while await form.next_event() is not None:
        count += 1
        if count > _MOST_PARTS:
            raise InvalidRequestError(f"A form may have {_MOST_PARTS} parts.")
        content = form.content()
        yield Part(form.file_name, content)
        async for _ in content:
            pass  # what was not read


class _Form:
    """Its events are the beginning of a part, True; its content; and its end, False."""

    def __init__(self, content_type: str, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces
        self._events: deque[bytes | bool] = deque()
        self._header: list[bytes] = [b"", b""]
        self._file_names: deque[str | None] = deque()
        self._is_complete = False
        _, options = parse_options_header(content_type)
        callbacks = {
            "on_part_begin": lambda: self._file_names.append(None),
            "on_header_field": lambda data, start, end: self._add_header(0, data[start:end]),
            "on_header_value": lambda data, start, end: self._add_header(1, data[start:end]),
            "on_header_end": self._end_header,
            "on_headers_finished": lambda: self._events.append(True),
            "on_part_data": lambda data, start, end: self._events.append(data[start:end]),
            "on_part_end": lambda: self._events.append(False),
            "on_end": self._complete,
        }
        try:
            self._parser = MultipartParser(options.get(b"boundary", b""), callbacks)  # type: ignore[arg-type]
        except (FormParserError, ValueError) as error:
            raise InvalidRequestError(_NOT_A_FORM) from error
        if b"boundary" not in options:
            raise InvalidRequestError(_NOT_A_FORM)

    @property
    def file_name(self) -> str | None:
        """Of the part that has just begun."""
        return self._file_names.popleft()

    async def content(self) -> AsyncIterator[bytes]:
        while isinstance(data := await self.next_event(), bytes):
            yield data

    async def next_event(self) -> bytes | bool | None:
        """None at the end of the form."""
        while not self._events:
            piece = await anext(self._pieces, None)
            if piece is None:
                if not self._is_complete:
                    raise InvalidRequestError(_NOT_A_FORM)
                return None
            try:
                self._parser.write(piece)
            except FormParserError as error:
                raise InvalidRequestError(_NOT_A_FORM) from error
        return self._events.popleft()

    def _add_header(self, part: int, data: bytes) -> None:
        self._header[part] += data

    def _end_header(self) -> None:
        (name, value), self._header = self._header, [b"", b""]
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            if (file_name := options.get(b"filename")) is not None:
                self._file_names[-1] = file_name.decode(errors="replace")

    def _complete(self) -> None:
        self._is_complete = True
