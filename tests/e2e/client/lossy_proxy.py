"""A proxy before a server that loses answers and answers 503, as it is told call by call."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

Fate = Literal["pass", "drop", "reset", "refuse", "refuse_late", "cut"]
"""`drop`: carried out, and the connection is closed without an answer. `reset`: closed at once.
`refuse`: 503, and the server never hears of it. `refuse_late`: carried out, and answered 503.
`cut`: the answer breaks off after its first bytes."""
Choose = Callable[[str, str], Fate]
"""What the request of this method and path meets."""

_NOT_PASSED_ON = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class LossyProxy:
    url: str
    choose: Choose = lambda _method, _path: "pass"
    met: list[tuple[str, str, Fate]] = field(default_factory=list)
    """Every request, with what it met."""

    def calm(self) -> None:
        self.choose = lambda _method, _path: "pass"

    def first(self, fates: list[Fate], *, path: str = "") -> None:
        """The next requests whose path contains this meet these, one after the other."""
        left = list(fates)
        lock = threading.Lock()

        def choose(_method: str, asked: str) -> Fate:
            with lock:
                return left.pop(0) if left and path in asked else "pass"

        self.choose = choose

    def at_random(self, share: float, *, seed: int) -> None:
        """This share of all requests meets something."""
        rng = random.Random(seed)
        lock = threading.Lock()
        fates: list[Fate] = ["drop", "drop", "reset", "refuse", "refuse_late"]

        def choose(_method: str, _path: str) -> Fate:
            with lock:
                return rng.choice(fates) if rng.random() < share else "pass"

        self.choose = choose

    def count(self, *fates: Fate) -> int:
        return sum(fate in fates for _, _, fate in self.met)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, target_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(target_url).netloc
        self.proxy = LossyProxy(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that is gone is no news here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Quiet."""

    def do_any(self) -> None:
        body = _body(self)
        fate = self.server.proxy.choose(self.command, self.path)
        self.server.proxy.met.append((self.command, self.path, fate))
        self.close_connection = True
        if fate == "refuse":
            self._say_503()
        elif fate != "reset":
            self._pass_on(body, fate)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_any  # noqa: N815

    def _pass_on(self, body: bytes, fate: Fate) -> None:
        with closing(HTTPConnection(self.server.target, timeout=60)) as connection:
            try:
                connection.request(self.command, self.path, body, _passed_on(self.headers))
                answer = connection.getresponse()
                if fate in ("drop", "refuse_late"):
                    answer.read()
                else:
                    self._stream(answer, is_cut=fate == "cut")
            except (OSError, HTTPException):
                return
        if fate == "refuse_late":
            self._say_503()

    def _stream(self, answer: HTTPResponse, *, is_cut: bool) -> None:
        self.send_response_only(answer.status)
        for name, value in _passed_on(answer.headers).items():
            self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        while piece := answer.read1(1 << 16):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.flush()
            if is_cut:
                return
        self.wfile.write(b"0\r\n\r\n")

    def _say_503(self) -> None:
        content = b'{"error": {"code": "SERVICE_UNAVAILABLE", "message": "away"}}'
        self.send_response_only(503)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Retry-After", "0")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def lossy_proxy(server_url: str) -> Iterator[LossyProxy]:
    server = _Server(server_url)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _body(handler: BaseHTTPRequestHandler) -> bytes:
    if handler.headers.get("transfer-encoding", "").lower() == "chunked":
        pieces = []
        while size := int(handler.rfile.readline().split(b";")[0], 16):
            pieces.append(handler.rfile.read(size))
            handler.rfile.readline()
        handler.rfile.readline()
        return b"".join(pieces)
    return handler.rfile.read(int(handler.headers.get("content-length") or 0))


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _NOT_PASSED_ON}
