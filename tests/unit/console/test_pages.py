"""How pages show times, sizes and money, and send what is typed."""

import re
from importlib.resources import files
from pathlib import Path

import pytest
from markupsafe import Markup
from starlette.requests import Request

from sandyard.console.assets import Assets
from sandyard.console.pages import Pages, ago, money, size, when


def test_times_are_for_the_page_to_show_in_its_viewers_zone() -> None:
    shown = '<time datetime="2026-11-17T03:00:00+00:00">2026-11-17 03:00 UTC</time>'
    assert when("2026-11-17T04:00:00+01:00") == shown
    assert when(1794884400) == shown
    assert when(None) == when(0) == "&ndash;"


def test_a_time_may_be_shown_as_how_long_ago_it_was() -> None:
    shown = '<time data-ago datetime="2026-11-17T03:00:00+00:00">2026-11-17 03:00 UTC</time>'
    assert ago(1794884400) == shown
    assert f"{Markup('<p>{}</p>').format(ago(1794884400))}" == f"<p>{shown}</p>"
    assert ago(None) == "&ndash;"


def test_a_time_can_carry_no_markup() -> None:
    assert "<b>" not in when("2026-11-17T04:00:00+01:00<b>"[:25])


def test_sizes_have_the_largest_fitting_unit() -> None:
    assert [size(each) for each in (0, 1023, 1024, 3 * 2**19, 2**30, 2**41)] == [
        "0 B",
        "1023 B",
        "1.0 kB",
        "1.5 MB",
        "1.0 GB",
        "2.0 TB",
    ]
    assert size(None) == "\N{EN DASH}"


def test_money_has_four_places() -> None:
    assert money("EUR", "1234.56789") == ('<span>1,234.5679 <span class="unit">EUR</span></span>')
    assert money("EUR", None) == "\N{EN DASH}"


def test_the_subject_of_an_event_links_to_its_page() -> None:
    pages = Pages(Assets(), base_path="/lab", frames="", parts={})
    leads = {
        ("broker", "lease.created", "0b5e"): "/lab/console/labs/sandboxes/0b5e",
        ("telemetry", "device.registered", "AA:01"): "/lab/console/devices/AA%3A01",
        ("platform", "project.created", "../a"): "/lab/console/projects/..%2Fa",
        ("broker", "ticket.created", "01a1"): None,
    }
    for (part, kind, subject), path in leads.items():
        assert pages.subject_url({"part": part, "kind": kind, "subject": subject}) == path


@pytest.mark.parametrize(
    ("parts", "asked_for"),
    [
        (("broker", "telemetry", "platform"), ["broker_admin_token"]),
        (("telemetry",), ["telemetry_admin_token"]),
        (("platform", "previews"), []),
    ],
)
def test_the_login_page_names_the_token_of_the_served_part(
    parts: tuple[str, ...], asked_for: list[str]
) -> None:
    pages = Pages(Assets(), base_path="", frames="", parts=dict.fromkeys(parts, "sqlite"))
    request = Request({"type": "http", "path": "/", "headers": [], "query_string": b""})
    drawn = pages.page(request, "login.html", None, error=None, next="/console")
    assert re.findall(r"secrets/(\w+)", bytes(drawn.body).decode()) == asked_for


def test_forms_with_input_are_posted() -> None:
    """A form may be sent before htmx is there. Then it is posted by the browser; and one that has
    to be confirmed goes nowhere."""
    templates = Path(str(files("sandyard.console") / "templates")).glob("*.html")
    forms = [form for each in templates for form in re.findall(r"<form\b[^>]*>", each.read_text())]
    sent = [form for form in forms if "hx-post" in form]
    assert len(sent) > 15
    for form in sent:
        assert 'method="post"' in form
        assert (" action=" in form) == ("hx-confirm" not in form)
