"""A small web app on the standard library: a visitors' book that survives stop and start."""

import html
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

BOOK = Path("visitors.txt")
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Visitors</title>
<h1>Visitors</h1>
<ul>{names}</ul>
<form method="post"><input name="name" maxlength="80" required><button>Sign</button></form>
</html>
"""


class VisitorsBook(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        names = BOOK.read_text().splitlines() if BOOK.exists() else []
        page = PAGE.format(names="".join(f"<li>{html.escape(name)}</li>" for name in names))
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        length = min(int(self.headers.get("Content-Length", "0")), 1000)
        name = parse_qs(self.rfile.read(length).decode()).get("name", [""])[0]
        with BOOK.open("a") as book:
            book.write(" ".join(name.split())[:80] + "\n")
        self.send_response(303)
        self.send_header("Location", "/")
        self.end_headers()


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), VisitorsBook)
    server.serve_forever()
