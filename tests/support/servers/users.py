"""Accounts of a running server: they sign up, read their mail and call the API."""

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.platform.in_process import read_outbox, token_in
from tests.support.servers.processes import ServerProcess, run_command

PASSWORD = "correct horse battery"


@dataclass
class Person:
    """A caller of the API; `answers` has every request with its response."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)
    answers: list[tuple[str, str]] = field(default_factory=list)
    verify: ssl.SSLContext | bool = True

    def call(
        self, method: str, path: str, body: Any = None, *, expect: int = 200, **headers: str
    ) -> Any:
        answer = httpx.request(
            method,
            f"{self.url}/api/v1{path}",
            json=body,
            headers=headers or self.headers,
            timeout=20,
            verify=self.verify,
        )
        self.answers.append((f"{method} {path}", answer.text + str(answer.headers)))
        assert answer.status_code == expect, (method, path, answer.text)
        return answer.json() if answer.content else None

    def log_in(self, login: str, password: str) -> None:
        body = {"login": login, "password": password}
        token = self.call("POST", "/auth/login", body)["access_token"]
        self.headers = {"Authorization": f"Bearer {token}"}


def mailed_token(server: ServerProcess, *, number: int) -> str:
    """The token in the mail with this number, counted from 1; waits for it."""
    deadline = time.monotonic() + 30
    while len(mails := read_outbox(server.data_dir)) < number:
        assert time.monotonic() < deadline, "the mail did not come"
        time.sleep(0.02)
    return token_in(mails[number - 1])


def create_admin(server: ServerProcess, *arguments: str, password: str = PASSWORD) -> Any:
    return run_command(
        *("users", "create-admin", "--password-stdin", *arguments),
        environment={"DATA_DIR": str(server.data_dir)},
        text=password + "\n",
    )


def signed_up(server: ServerProcess, username: str, *, mail: int) -> Person:
    """An account that has signed up, verified with the mail of this number, and logged in."""
    person = Person(server.url, verify=server.verify)
    body = {"email": f"{username}@example.com", "username": username, "password": PASSWORD}
    person.call("POST", "/auth/signup", body, expect=202)
    token = mailed_token(server, number=mail)
    person.call("POST", "/auth/verify", {"token": token}, expect=201)
    person.log_in(username, PASSWORD)
    return person


def until(answers: Callable[[], Any], *, within_sec: float = 60) -> Any:
    """Waits for the first answer that is not empty; returns it."""
    deadline = time.monotonic() + within_sec
    while not (answer := answers()):
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.1)
    return answer
