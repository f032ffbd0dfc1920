"""A proxy that serves servers below a path, and nothing else, as people put before theirs; each
request goes to the next of them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle
from threading import Thread

import httpx

_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length", "date", "server"}


class _Proxy(BaseHTTPRequestHandler):
    prefix: str
    targets: Iterator[str]
    asked: Counter[str]

    def do_GET(self) -> None:
        path = self.path.removeprefix(self.prefix)
        if path == self.path:
            self.send_error(404, "outside of the prefix")
            return
        target = next(self.targets)
        self.asked[target] += 1
        length = int(self.headers.get("content-length", "0"))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
        with httpx.stream(
            self.command,
            target + (path or "/"),
            headers=headers,
            content=self.rfile.read(length),
            timeout=120,
        ) as answer:
            self._pass_on(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def _pass_on(self, answer: httpx.Response) -> None:
        self.send_response(answer.status_code)
        for name, value in answer.headers.multi_items():
            if name not in _HOP:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        for piece in answer.iter_raw():
            self.wfile.write(piece)
            self.wfile.flush()

    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def prefix_proxy(port: int, prefix: str, *targets: str) -> Iterator[Counter[str]]:
    """Gives how many requests each of them was sent."""
    asked: Counter[str] = Counter()
    fields = {"prefix": prefix, "targets": cycle(targets), "asked": asked}
    handler = type("Proxy", (_Proxy,), fields)
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown()
