"""Somebody's session in the console, without a browser: what its pages and streams hold."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

from tests.e2e.console.people import password
from tests.support.servers.processes import ServerProcess

_LATER_MS = 6000
"""More than a page is told of from before it was drawn."""


@dataclass
class ConsoleSession:
    """Sends the session's cookie, which a browser would keep on localhost."""

    url: str
    cookie: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Cookie": self.cookie, "Sec-Fetch-Site": "same-origin"}

    def get(self, path: str, view: str | None = None) -> httpx.Response:
        """A page; or one view of it, as htmx asks for it again."""
        of_htmx = {"HX-Request": "true", "HX-Target": view} if view else {}
        return httpx.get(self.url + path, headers=self.headers | of_htmx, timeout=60)

    def post(self, path: str, form: dict[str, str] | None = None) -> httpx.Response:
        return httpx.post(self.url + path, data=form or {}, headers=self.headers, timeout=60)

    def call(self, method: str, path: str, body: object = None) -> httpx.Response:
        """Of the API, as a page of this viewer makes it."""
        whole = f"{self.url}/console/api{path}"
        answer = httpx.request(method, whole, json=body, headers=self.headers, timeout=60)
        return answer.raise_for_status()

    @contextmanager
    def live(self) -> Iterator[Iterator[str]]:
        """The lines of the event stream, of what happens from now on."""
        whole = f"{self.url}/console/live?since={int(time.time() * 1000) + _LATER_MS}"
        with httpx.stream("GET", whole, headers=self.headers, timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            yield (line for line in lines if line.startswith(("event:", "data:")))


def session_of(server: ServerProcess, name: str) -> ConsoleSession:
    form = {"login": name, "password": password(name)}
    return _opened(server, "/console/login", form)


def operator_session(server: ServerProcess) -> ConsoleSession:
    return token_session(server, server.admin_token)


def token_session(server: ServerProcess, token: str) -> ConsoleSession:
    return _opened(server, "/console/login/operator", {"token": token})


def _opened(server: ServerProcess, path: str, form: dict[str, str]) -> ConsoleSession:
    headers = {"Sec-Fetch-Site": "same-origin"}
    answer = httpx.post(server.url + path, data=form, headers=headers, timeout=60)
    assert answer.status_code == 303, answer.text
    return ConsoleSession(server.url, answer.headers["set-cookie"].partition(";")[0])
