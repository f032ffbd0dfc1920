"""Sandboxes in the console: from the gallery to a terminal, files, secrets and the end."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.e2e.console.conftest import confirm, log_in
from tests.e2e.console.people import BOB
from tests.e2e.console.sessions import ConsoleSession
from tests.support.servers.processes import ServerProcess


@pytest.fixture
def box(ann: Page, console: ServerProcess) -> str:
    """The path of a running sandbox of Ann's, which she has made from the gallery."""
    ann.get_by_role("heading", name="Overview").wait_for()
    ann.goto(f"{console.url}/console/sandboxes?status=running")
    if ann.locator("#list tbody tr").count():
        ann.locator("#list tbody tr a").first.click()
    else:
        ann.goto(f"{console.url}/console/sandboxes/new")
        expect(ann.get_by_role("radio", name="static")).to_be_checked()
        ann.get_by_label("Name").fill("my page")
        ann.get_by_role("button", name="Make sandbox").click()
    expect(ann.locator("h1 .state.running")).to_be_visible(timeout=60_000)
    return ann.url.removeprefix(console.url)


def test_an_empty_list_of_sandboxes_says_what_to_do(page: Page, console: ServerProcess) -> None:
    log_in(page, console, BOB)
    page.get_by_role("link", name="Sandboxes").first.click()
    page.get_by_role("link", name="Create one from a template.").click()
    expect(page.get_by_role("heading", name="New sandbox")).to_be_visible()


def test_its_page_opens_and_its_log_is_shown_live(ann: Page, box: str) -> None:
    with ann.expect_popup() as opened:
        ann.get_by_role("button", name="Open its page").click()
    expect(opened.value.locator("h1")).to_be_visible()
    assert ".localhost:" in opened.value.url
    expect(ann.locator("[data-log]")).to_contain_text("GET /")
    expect(ann.locator(".u-legend")).to_contain_text("memory")  # drawn once there is a sample
    for cost in ("cost up to now", "cost this month"):
        shown = ann.locator(f"dt:text-is('{cost}') + dd")
        expect(shown).to_have_text(re.compile(r"^0\.\d{4} USD$"))


def test_its_address_opens_its_private_page_for_its_owner(ann: Page, box: str) -> None:
    with ann.expect_popup() as opened:
        ann.locator("#state").get_by_role("button", name=re.compile("^http:")).click()
    expect(opened.value.locator("h1")).to_be_visible()


def test_the_list_is_sorted_by_a_column_and_the_order_is_in_the_address(
    ann: Page, anns_session: ConsoleSession, console: ServerProcess, box: str
) -> None:
    found = anns_session.call("GET", "/api/v1/templates?visibility=official&q=static").json()
    template_id = found["templates"][0]["template_id"]
    names = ["sorted c", "sorted a", "sorted b"]
    for name in names:
        body = {"name": name, "template_id": template_id}
        anns_session.call("POST", "/api/v1/sandboxes", body)
    ann.goto(f"{console.url}/console/sandboxes?q=sorted")
    rows = ann.locator("#list tbody td:first-child a")
    expect(rows).to_have_text(names[::-1])
    ann.get_by_role("link", name="Name").click()
    expect(rows).to_have_text(sorted(names))
    assert "q=sorted" in ann.url
    ann.get_by_role("link", name="Name").click()
    expect(rows).to_have_text(sorted(names, reverse=True))
    expect(ann.locator("th[aria-sort=descending]")).to_have_text("Name")
    ann.reload()
    expect(rows).to_have_text(sorted(names, reverse=True))


def test_unsaved_changes_of_a_file_are_not_lost_without_a_question(ann: Page, box: str) -> None:
    ann.get_by_role("link", name="Files").click()
    ann.get_by_role("button", name="New file").click()
    ann.get_by_label("Text").fill("not saved")
    ann.get_by_role("button", name="New file").click()
    expect(ann.get_by_text("Your unsaved changes are lost.")).to_be_visible()
    ann.get_by_role("button", name="Cancel").click()
    expect(ann.get_by_label("Text")).to_have_value("not saved")
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.accept()

    ann.on("dialog", stay)
    ann.get_by_role("link", name="Overview").first.click()
    expect(ann.get_by_label("Text")).to_have_count(0)
    assert asked == ["beforeunload"]


def test_listening_ports_are_listed_opened_and_made_public(
    ann: Page, anns_session: ConsoleSession, box: str
) -> None:
    ports = ann.locator("#ports li")
    expect(ports).to_have_count(1)
    expect(ports).to_contain_text(re.compile(r"http://8080-sbx-"))
    with ann.expect_popup() as opened:
        ports.get_by_role("button", name="Open port 8080").click()
    expect(opened.value.locator("h1")).to_be_visible()
    ports.get_by_role("button", name="Make public port 8080").click()
    expect(ports.get_by_role("button", name="Make private port 8080")).to_be_visible()
    path = f"/api/v1/sandboxes/{box.rpartition('/')[2]}"
    assert anns_session.call("GET", path).json()["public_ports"] == [8080]
    ports.get_by_role("button", name="Make private port 8080").click()
    expect(ports.get_by_role("button", name="Make public port 8080")).to_be_visible()


def test_commands_are_typed_in_a_terminal(ann: Page, box: str) -> None:
    ann.get_by_role("link", name="Terminal").click()
    expect(ann.get_by_text("Connected.")).to_be_visible()
    ann.locator("[data-terminal]").click()
    ann.keyboard.type("echo $((40 + 2))s; touch from-terminal\n")
    expect(ann.locator(".xterm-rows")).to_contain_text("42s")
    screen = ann.locator(".xterm-screen").bounding_box()
    assert screen is not None
    assert screen["y"] + screen["height"] <= 800, "its last row is in the window"


def test_files_are_uploaded_edited_and_removed(
    ann: Page, anns_session: ConsoleSession, box: str, tmp_path: Path
) -> None:
    (tmp_path / "<b>notes.txt").write_text("first")
    with_folder = {"path": "/workspace/deep/er"}
    anns_session.call("POST", f"/api/v1/sandboxes/{box.split('/')[-1]}/files/mkdir", with_folder)
    (tmp_path / "picture.bin").write_bytes(b"\x89PNG\xff")
    ann.get_by_role("link", name="Files").click()
    ann.locator("[data-upload]").set_input_files(
        [tmp_path / "<b>notes.txt", tmp_path / "picture.bin"]
    )
    ann.get_by_role("button", name="picture.bin", exact=True).click()
    expect(ann.get_by_text("picture.bin is no text.")).to_be_visible()
    ann.get_by_role("button", name="<b>notes.txt", exact=True).click()
    expect(ann.get_by_label("Text")).to_have_value("first")
    ann.get_by_label("Text").fill("second")
    ann.get_by_role("button", name="Save").click()
    expect(ann.get_by_text("Saved /workspace/")).to_be_visible()
    row = ann.get_by_role("row").filter(has_text="<b>notes.txt")
    with ann.expect_download() as download:
        row.get_by_role("link", name="Download").click()
    assert Path(download.value.path()).read_text() == "second"
    with ann.expect_download() as download:
        ann.get_by_role("link", name="Download all").click()
    assert b"picture.bin" in Path(download.value.path()).read_bytes()
    tree = ann.get_by_role("navigation", name="Tree of files")
    tree.get_by_text("deep/").click()
    expect(tree.get_by_text("er/")).to_be_visible()
    expect(tree.get_by_role("button", name="Edit /workspace/<b>notes.txt")).to_be_visible()
    ann.get_by_role("button", name="Remove <b>notes.txt").click()
    confirm(ann)
    expect(ann.get_by_role("button", name="<b>notes.txt", exact=True)).to_have_count(0)


def test_a_machine_outlives_its_program_and_keeps_its_processes(
    ann: Page, anns_session: ConsoleSession, console: ServerProcess
) -> None:
    kind = {"category": "web", "language": "any", "isolation": "gvisor"}
    body = {"name": "with a kernel", "repository_url": "builtin:static", **kind}
    made = anns_session.call("POST", "/api/v1/templates", body).json()
    body = {"name": "outlives", "template_id": made["template_id"]}
    box = anns_session.call("POST", "/api/v1/sandboxes", body).json()["sandbox_id"]
    ann.goto(f"{console.url}/console/sandboxes/{box}")
    ann.get_by_role("button", name="Start without its program").click()
    expect(ann.locator("#state")).to_contain_text("Its program: stopped", timeout=60_000)
    ann.get_by_role("button", name="Start its program").click()
    expect(ann.locator("#state")).to_contain_text("Its program: running", timeout=60_000)
    path = f"/api/v1/sandboxes/{box}"
    before = anns_session.call("GET", path).json()["timeout_at"]
    with ann.expect_response(re.compile("/extend$")):
        ann.get_by_role("button", name="Run 24 more hours").click()
    assert anns_session.call("GET", path).json()["timeout_at"] > before
    ann.get_by_role("button", name="Stop and keep its processes").click()
    expect(ann.locator("h1 .state.stopped")).to_be_visible(timeout=60_000)
    assert anns_session.call("GET", path).json()["snapshot_has_memory"]
    ann.get_by_role("link", name="Files").click()
    expect(ann.get_by_role("button", name="Procfile", exact=True)).to_be_visible()
    anns_session.call("DELETE", path)


def test_a_secret_is_set_and_not_shown(ann: Page, box: str) -> None:
    ann.get_by_label("Name", exact=True).fill("API_TOKEN")
    ann.get_by_label("Value").fill("hunter2")
    ann.get_by_label("Secret: never shown again").check()
    ann.get_by_role("button", name="Set", exact=True).click()
    expect(ann.get_by_role("cell", name="API_TOKEN", exact=True)).to_be_visible()
    assert "hunter2" not in ann.content()


def test_many_variables_are_shown_in_pages(
    ann: Page, anns_session: ConsoleSession, console: ServerProcess, box: str
) -> None:
    path = f"/api/v1/sandboxes/{box.rpartition('/')[2]}/env"
    for number in range(51):
        anns_session.call("PUT", f"{path}/MANY_{number:03}", {"value": "x"})
    ann.goto(f"{console.url}{box}")
    last = ann.get_by_role("cell", name="MANY_050", exact=True)
    expect(ann.get_by_role("cell", name="MANY_000", exact=True)).to_be_visible()
    expect(last).to_have_count(0)
    ann.locator("#variables").get_by_role("link", name="Next page").click()
    expect(last).to_be_visible()


def test_it_is_stopped_and_started_in_the_list(ann: Page, console: ServerProcess, box: str) -> None:
    """Its state changes there without a reload."""
    ann.goto(f"{console.url}/console/sandboxes?status=")
    row = ann.locator("#list tbody tr", has=ann.locator(f"a[href='{box}']"))
    expect(ann.locator("#live.on")).to_be_visible()
    row.get_by_role("button", name="Stop").click()
    expect(row.locator(".state.stopped")).to_be_visible(timeout=60_000)
    expect(row.locator("td:nth-child(4)")).to_have_text("\N{EN DASH}")  # nothing runs that ends
    row.get_by_role("button", name="Start").click()
    expect(row.locator(".state.running")).to_be_visible(timeout=60_000)


def test_it_is_stopped_and_recycled(ann: Page, console: ServerProcess, box: str) -> None:
    ann.get_by_role("button", name="Stop", exact=True).click()
    expect(ann.locator("h1 .state.stopped")).to_be_visible(timeout=60_000)
    ann.get_by_role("button", name="Recycle").click()
    ann.get_by_role("button", name="Go on").click()
    expect(ann.locator("h1 .state.recycled")).to_be_visible(timeout=60_000)
    expect(ann.get_by_text("sandbox.recycled")).to_be_visible()
