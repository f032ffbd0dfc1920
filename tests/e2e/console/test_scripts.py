"""Nothing that others write or print runs: a log, a file that is opened, a terminal, an error."""

import json
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.e2e.console.markup import FILE, NAME, RUN, TAGS, Marked
from tests.e2e.console.watching import assert_nothing_ran
from tests.support.servers.processes import ServerProcess


def test_nothing_runs_from_a_log_or_a_file_that_is_opened(
    watched: Page, console: ServerProcess, marked: Marked
) -> None:
    watched.goto(f"{console.url}/console/sandboxes/{marked.sandbox}")
    with watched.expect_popup() as opened:
        watched.get_by_role("button", name="Open its page").click()
    opened.value.goto(f"{opened.value.url.partition('?')[0]}{quote(TAGS)}")
    expect(watched.locator("[data-log]")).to_contain_text("onerror")
    assert_nothing_ran(watched)
    watched.goto(f"{console.url}/console/sandboxes/{marked.sandbox}/files")
    watched.get_by_role("button", name=FILE, exact=True).click()
    expect(watched.get_by_label("Text")).to_have_value(json.dumps(NAME))
    assert_nothing_ran(watched)


def test_nothing_runs_from_what_a_program_prints_in_a_terminal(
    watched: Page, console: ServerProcess, marked: Marked
) -> None:
    """Markup, a title, and a link that would be a script."""
    watched.goto(f"{console.url}/console/sandboxes/{marked.sandbox}/terminal")
    expect(watched.get_by_text("Connected.")).to_be_visible()
    watched.locator("[data-terminal]").click()
    octal = "".join(f"\\{ord(each):03o}" for each in TAGS)
    link = f"\\033]8;;javascript:{RUN}\\033\\\\link-here\\033]8;;\\033\\\\"
    watched.keyboard.type(f"printf '{octal}\\033]0;{RUN}\\007{link}\\n'\n")
    expect(watched.locator(".xterm-rows")).to_contain_text(TAGS[:28])
    watched.on("dialog", lambda dialog: dialog.accept())
    watched.locator(".xterm-rows >> text=link-here").last.click(force=True)
    assert len(watched.context.pages) == 1
    assert_nothing_ran(watched)


def test_an_error_shows_what_was_sent_as_it_is(watched: Page, console: ServerProcess) -> None:
    watched.goto(f"{console.url}/console/labs/sandboxes/{quote(NAME, safe='')}")
    assert_nothing_ran(watched)
    watched.goto(f"{console.url}/console/labs?q={quote(NAME)}&hours={quote(NAME)}&cursor=x")
    assert_nothing_ran(watched)
