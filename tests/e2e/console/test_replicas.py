"""Several replicas behind one address: a request may reach any of them, and all know the same."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from playwright.sync_api import Page, expect

from sandyard.kit.free_ports import free_port
from tests.e2e.console.people import open_account, password
from tests.e2e.console.prefix_proxy import prefix_proxy
from tests.e2e.console.sessions import ConsoleSession, operator_session, session_of
from tests.support.servers.processes import (
    ServerProcess,
    clean_environment,
    csp_simulator,
    run_command,
    sandyard_serve,
)
from tests.support.storage.engines import create_database

WHO = "kim"


@dataclass
class Replicas:
    one: ServerProcess
    other: ServerProcess
    environment: dict[str, str]
    base: str
    """The address that people use."""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory, postgres_url: str) -> Iterator[Replicas]:
    folder, port = tmp_path_factory.mktemp("replicas"), free_port()
    base = f"http://localhost:{port}/lab"
    with ThreadPoolExecutor(1) as apart:  # where no browser's loop is running
        url = apart.submit(lambda: asyncio.run(create_database(postgres_url))).result()
    settings = {"DATABASE_URL": url, "PARTS": "broker,platform", "PUBLIC_URL": base}
    environment = clean_environment(settings)
    run_command("db", "upgrade", environment=settings).check_returncode()
    with ExitStack() as stack:
        provider = stack.enter_context(csp_simulator(folder, "--count", "5"))
        settings |= {"CSP_BASE_URL": provider, "DATABASE_POOL_SIZE": "4"}
        one, other = (
            stack.enter_context(sandyard_serve(folder / name, environment=settings))
            for name in ("one", "other")
        )
        open_account(one, WHO)
        yield Replicas(one, other, environment, base)


def on(server: ServerProcess, session: ConsoleSession) -> ConsoleSession:
    """The same cookie, sent to another replica."""
    return ConsoleSession(server.url, session.cookie)


def test_a_login_on_one_replica_is_valid_on_all(page: Page, replicas: Replicas) -> None:
    port = int(replicas.base.rpartition(":")[2].partition("/")[0])
    with prefix_proxy(port, "/lab", replicas.one.url, replicas.other.url) as asked:
        page.goto(f"{replicas.base}/")
        page.get_by_label("E-mail address or user name").fill(WHO)
        page.get_by_label("Password").fill(password(WHO))
        page.get_by_role("button", name="Log in", exact=True).click()
        page.get_by_role("link", name="Sandboxes").first.click()
        expect(page.locator("#live.on")).to_be_visible()
        for server in (replicas.one, replicas.other):
            make_sandbox(session_of(server, WHO), f"made on {server.data_dir.name}")
            made = page.get_by_role("link", name=f"made on {server.data_dir.name}")
            expect(made).to_be_visible()  # without a reload
        page.goto("about:blank")  # ends the event stream before the proxy
    assert set(asked) == {replicas.one.url, replicas.other.url}
    assert min(asked.values()) > 3


def make_sandbox(session: ConsoleSession, name: str) -> None:
    found = session.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    body = {"name": name, "template_id": found["templates"][0]["template_id"]}
    session.call("POST", "/api/v1/sandboxes", body)


def test_a_change_on_one_replica_reaches_the_streams_of_all(replicas: Replicas) -> None:
    here = session_of(replicas.one, WHO)
    there = on(replicas.other, here)
    with here.live() as heard_here, there.live() as heard_there:
        assert there.post("/console/projects", {"name": "made there"}).status_code == 303
        for heard in (heard_here, heard_there):
            assert [next(heard), next(heard)] == ["event: platform", "data: changed"]
        there.post("/console/logout")
        for heard in (heard_here, heard_there):
            assert [*heard][-2:] == ["event: ended", "data: changed"]
    assert here.get("/console/account").status_code == 303


def test_an_operator_acts_on_one_and_is_shown_it_on_the_other(replicas: Replicas) -> None:
    here = operator_session(replicas.one)
    there = on(replicas.other, here)
    free = here.call("GET", "/v1/admin/sandboxes?status=available&limit=1").json()
    path = f"/console/labs/sandboxes/{free['sandboxes'][0]['sandbox_id']}"
    with there.live() as heard:
        here.post(f"{path}/quarantine", {"reason": "no network"}).raise_for_status()
        assert next(heard) == "event: broker"
    assert "no network" in there.get(path).text
