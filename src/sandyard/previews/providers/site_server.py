"""The web server that shows a project's files inside a sandbox."""

SITE_SERVER = """
import http.server, sys
from functools import partial

TEXTS = ("text/", "application/javascript", "application/json", "image/svg+xml")

class Site(http.server.SimpleHTTPRequestHandler):
    def guess_type(self, path):
        kind = super().guess_type(path)
        return kind + "; charset=utf-8" if kind.startswith(TEXTS) else kind

    def end_headers(self):
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

host, port, folder = sys.argv[1:]
serve = partial(Site, directory=folder)
http.server.ThreadingHTTPServer((host, int(port)), serve).serve_forever()
""".lstrip()
"""Uses only Python's standard library: `python3 -c SITE_SERVER HOST PORT FOLDER`.

Files are UTF-8 text unless their name says otherwise, and browsers must not cache them: they may
change with the next sync.
"""
