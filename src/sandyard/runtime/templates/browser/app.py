"""Shows what a browser makes of a page: /?url=https://… is its text as Playwright sees it.

It drives the system's Chromium, which a machine's environment must have (Debian: chromium).
"""

import os
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import sync_playwright

HELLO = "data:text/html,<h1>Hello from a browser</h1>"


def text_of(url: str) -> str:
    with sync_playwright() as playwright:
        # Chromium's own sandbox needs rights that this machine, a sandbox itself, has not.
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM", "/usr/bin/chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        page.goto(url)
        text = page.inner_text("body")
        browser.close()
    return text


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        [url] = parse_qs(urlsplit(self.path).query).get("url", [HELLO])
        body = text_of(url).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
