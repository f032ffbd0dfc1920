"""What is shown: the files of a project, or a page in place of them."""

import functools
import html
import http
import http.server
import os
import threading
from collections.abc import Iterable
from typing import Any

from sandyard.previews.launcher.detection import read

_TEXTS = ("text/", "application/javascript", "application/json", "image/svg+xml")
_TITLES = {"installing": "Installing packages", "failed": "This preview does not run"}
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="1"><title>{title}</title>
<style>body {{ font: 16px system-ui; margin: 3rem }} pre {{ overflow: auto }}</style>
<h1 data-phase="{phase}">{title}</h1><p>{kind}</p><pre>{lines}</pre>"""
"""Reloads itself each second."""
FALLBACK = "200.html"
"""The page for paths that no file has, if there is one: client-side routes need it."""
NOT_FOUND = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Not found</title>
<style>body { font: 16px system-ui; margin: 3rem }</style>
<h1>Not found</h1><p>There is no such page here. <a href="/">To the start</a></p>"""


def page(phase: str, kind: str, lines: Iterable[str]) -> str:
    title = _TITLES.get(phase, "Starting")
    return _PAGE.format(title=title, phase=phase, kind=kind, lines=html.escape("\n".join(lines)))


def serve_files(port: int, site: str) -> http.server.ThreadingHTTPServer:
    """As they are, by the rules of published projects; browsers must not cache them, as they may
    change with the next sync."""

    class Site(http.server.SimpleHTTPRequestHandler):
        def guess_type(self, path: Any) -> str:
            kind = super().guess_type(path)
            return kind + "; charset=utf-8" if kind.startswith(_TEXTS) else kind

        def translate_path(self, path: str) -> str:
            found = super().translate_path(path)
            wanted = [found, f"{found}.html"]
            if "." not in os.path.basename(found):
                wanted.append(os.path.join(site, FALLBACK))
            return next(filter(os.path.exists, wanted), found)

        def send_error(self, code: int, message: str | None = None, *details: Any) -> None:
            if code != http.HTTPStatus.NOT_FOUND:
                super().send_error(code, message, *details)
                return
            body = (read(site, "404.html") or NOT_FOUND).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def end_headers(self) -> None:
            self.send_header("Cache-Control", "no-store")
            super().end_headers()

    serve = functools.partial(Site, directory=site)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), serve)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    return server
