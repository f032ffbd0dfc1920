"""Pictures of every screen of the console, with live data: `make screenshots`."""

import asyncio
import math
import shutil
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Literal

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from sandyard.broker.history.model import PoolSample, minute_of
from sandyard.broker.history.stores.sql import SqlHistoryStore
from sandyard.broker.pool.model import Status
from sandyard.kit.sql.database import SqliteDatabase
from tests.e2e.console.conftest import ARGUMENTS, log_in
from tests.e2e.console.people import ADMIN, BOB, open_accounts
from tests.e2e.console.readings import BOOT_ID, HARDWARE_ID
from tests.support.servers.processes import ServerProcess, sandyard_serve

WIDTHS = {1280: "", 375: "-narrow"}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
IN_DOCS = {"labs": 965, "sandbox": 1060, "terminal": 700, "device": 1120}
"""The pictures of README and docs, which are in docs/pictures, and how high they are."""
SCREENS = {
    "overview": "/console",
    "labs": "/console/labs",
    "waiting": "/console/labs/waiting",
    "reservations": "/console/labs/reservations",
    "jobs": "/console/labs/jobs",
    "sandboxes": "/console/sandboxes",
    "gallery": "/console/sandboxes/new",
    "templates": "/console/templates",
    "volumes": "/console/volumes",
    "template": "/console/templates/{template}",
    "projects": "/console/projects",
    "devices": "/console/devices",
    "device": f"/console/devices/{HARDWARE_ID}?range=1h",
    "account": "/console/account",
    "admin": "/console/admin",
    "events": "/console/admin/events",
    "integrations": "/console/admin/integrations",
    "account-events": "/console/account/events",
    "not-found": "/console/sandboxes/sbx-none",
    "sandbox": "/console/sandboxes/{sandbox}",
    "files": "/console/sandboxes/{sandbox}/files",
    "terminal": "/console/sandboxes/{sandbox}/terminal",
    "settings": "/console/sandboxes/{sandbox}/settings",
    "client": "/console/admin/integrations/clients/acme",
    "deliveries": "/console/admin/integrations/webhooks/{webhook}",
    "pool-sandbox": "/console/labs/sandboxes/{leased}",
    "track": "/console/labs/tracks/intro-to-sql-1",
    "free-sandbox": "/console/labs/sandboxes/{free}",
    "project": "/console/projects/{project}",
    "versions": "/console/projects/{project}/versions?version=1",
    "project-settings": "/console/projects/{project}/settings",
}
AT_FIRST = {
    "first-overview": "/console",
    "first-sandboxes": "/console/sandboxes",
    "first-account": "/console/account",
}
"""Of somebody who has nothing yet."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as data,
        sandyard_serve(Path(data) / "data", environment=LOCAL_WEBHOOKS) as server,
    ):
        asyncio.run(remember_a_day(server))
        open_accounts(server)
        lease(server)
        send_readings(server)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=ARGUMENTS
            )
            take(browser, server, folder)


async def remember_a_day(server: ServerProcess) -> None:
    """Samples as a class some hours ago and one that goes on would have left them."""
    database = SqliteDatabase(server.data_dir / "broker.db", schema="broker")
    history, now = SqlHistoryStore(database), minute_of(time.time())
    try:
        for minute in range(24 * 60, -1, -5):
            used = round(12 * math.exp(-(((minute - 380) / 90) ** 2)))
            used += round(10 * math.exp(-((minute / 90) ** 2)))
            counts = {Status.AVAILABLE: 25 - used, Status.ALLOCATED: used}
            sample = PoolSample(now - minute * 60, counts, max(0, used - 11), used // 2)
            await history.record(sample, kept_from=0)
    finally:
        await database.close()


def lease(server: ServerProcess) -> None:
    missing = server.track | {"X-Track-ID": "kafka-7", "X-Sandbox-Name-Prefix": "kafka-"}
    httpx.post(f"{server.url}/v1/queue", headers=missing).raise_for_status()
    for number in range(9):
        headers = server.track | {"X-Track-ID": f"intro-to-sql-{number}"}
        httpx.post(f"{server.url}/v1/allocate", headers=headers).raise_for_status()
    day = 86_400
    for track, first, days, count in (("kubernetes-", 1, 2, 6), ("intro-to-sql-", 4, 5, 10)):
        begins = int(time.time()) + first * day
        kept = {"track_prefix": track, "count": count, "from": begins, "to": begins + days * day}
        answer = httpx.post(
            f"{server.url}/v1/admin/reservations", json=kept, headers=server.admin, timeout=30
        )
        answer.raise_for_status()


def send_readings(server: ServerProcess) -> None:
    with httpx.Client(base_url=f"{server.url}/telemetry/v1") as client:
        made = client.post("/api-keys", json={}, headers=server.operator).json()
        client.headers["X-API-Key"] = made["api_key"]
        about = {"hardware_id": HARDWARE_ID, "boot_id": BOOT_ID, "firmware_version": "1.4.2"}
        client.post("/register", json=about | {"friendly_name": "Greenhouse north"})
        now_ms = int(time.time() * 1000)
        readings = [
            about
            | {
                "batch_id": f"b-{minute}",
                "timestamp_ms": now_ms - minute * 60_000,
                "sensors": {
                    "temperature": round(21 + 2 * math.sin(minute / 9), 1),
                    "humidity": round(55 + 6 * math.cos(minute / 13)),
                },
                "sensor_status": {"temperature": "ok", "humidity": "ok"},
            }
            for minute in range(60)
            if minute not in range(20, 27)
        ]
        client.post("/data", json={"readings": readings}).raise_for_status()


def take(browser: Browser, server: ServerProcess, folder: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server.url}/console/login")
    shoot(page, folder, "login")
    page.goto(f"{server.url}/console/signup")
    shoot(page, folder, "signup")
    log_in(page, server, ADMIN)
    page.get_by_role("heading", name="Overview").wait_for()
    made = {
        "sandbox": start_one(page, server, "shop"),
        "webhook": add_webhook(server),
        "leased": find_sandbox(server, "allocated"),
        "free": find_sandbox(server, "available"),
        "project": make_project(page, server),
        "template": make_template(page, server),
    }
    for name, path in SCREENS.items():
        page.goto(server.url + path.format_map(made))
        page.locator("main h1, main .alert").first.wait_for()
        if name == "terminal":
            type_something(page)
        if name == "project":
            page.frame_locator("iframe").locator("h1").wait_for(timeout=60_000)
        shoot_for_docs(page, folder, name)
        shoot(page, folder, name)
    context.close()
    take_first(browser, server, folder)


def take_first(browser: Browser, server: ServerProcess, folder: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    log_in(page, server, BOB)
    for name, path in AT_FIRST.items():
        page.goto(server.url + path)
        shoot(page, folder, name)
    context.close()


def shoot(page: Page, folder: Path, name: str) -> None:
    """Wide and narrow, light and dark."""
    for (width, size), theme in product(WIDTHS.items(), THEMES):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=theme)
        page.wait_for_timeout(1000 if (size, theme) == ("", "light") else 300)
        suffix = size + ("-dark" if theme == "dark" else "")
        page.screenshot(path=folder / f"{name}{suffix}.png", full_page=True)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.emulate_media(color_scheme="light")


def shoot_for_docs(page: Page, folder: Path, name: str) -> None:
    if name not in IN_DOCS:
        return
    page.set_viewport_size({"width": 1280, "height": IN_DOCS[name]})
    page.wait_for_timeout(1000)
    (folder / "docs").mkdir(exist_ok=True)
    page.screenshot(path=folder / "docs" / f"{name}.png")


def find_sandbox(server: ServerProcess, status: str) -> str:
    """The id of one of the pool that is in this state."""
    listed = httpx.get(
        f"{server.url}/v1/admin/sandboxes?status={status}&limit=1", headers=server.admin
    ).json()
    return str(listed["sandboxes"][0]["sandbox_id"])


LOCAL_WEBHOOKS = {"WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}


def add_webhook(server: ServerProcess) -> str:
    """Of a webhook whose address answers nothing; and a client."""
    about = {"url": "http://127.0.0.1:9/hook", "kinds": ["lease.created"]}
    client = {"name": "acme", "scopes": ["allocate", "read"], "track_prefix": "acme-"}
    path = f"{server.url}/v1/admin/clients"
    httpx.post(path, json=client, headers=server.admin).raise_for_status()
    path = f"{server.url}/v1/admin/webhooks"
    made = httpx.post(path, json=about, headers=server.admin).raise_for_status().json()
    headers = server.track | {"X-Track-ID": "told-of-1"}
    httpx.post(f"{server.url}/v1/allocate", headers=headers).raise_for_status()
    return str(made["webhook_id"])


def make_project(page: Page, server: ServerProcess) -> str:
    """The id of one whose preview runs."""
    page.goto(f"{server.url}/console/projects")
    page.get_by_label("Name").fill("Shop window")
    page.get_by_role("button", name="Make a project").click()
    page.get_by_label("Text").fill("<!doctype html>\n<h1>Open from nine to five</h1>\n")
    page.get_by_role("button", name="Save and show").click()
    page.frame_locator("iframe").locator("h1").wait_for(timeout=60_000)
    return page.url.rpartition("/")[2]


def make_template(page: Page, server: ServerProcess) -> str:
    page.goto(f"{server.url}/console/templates")
    page.locator("form.new").get_by_label("Name").fill("shop")
    page.get_by_label("Repository").fill("builtin:static")
    page.get_by_role("button", name="Make a template").click()
    page.get_by_role("button", name="Delete this template").wait_for()
    return page.url.rpartition("/")[2]


def type_something(page: Page) -> None:
    page.get_by_text("Connected.").wait_for()
    page.locator("[data-terminal]").click()
    page.keyboard.type("ls -l; python3 --version; df -h /workspace | tail -1\n")
    page.wait_for_timeout(700)


def start_one(page: Page, server: ServerProcess, name: str) -> str:
    page.goto(f"{server.url}/console/sandboxes/new")
    page.get_by_role("radio", name="static").check()
    page.get_by_label("Name").fill(name)
    page.get_by_role("button", name="Make sandbox").click()
    page.locator("h1 .state.running").wait_for(timeout=60_000)
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Open its page").click()
    opened.value.wait_for_load_state("networkidle")
    opened.value.close()
    return page.url.rpartition("/")[2]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
