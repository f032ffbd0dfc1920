"""One device in the console: its gaps, several sensors in a chart, ranges, zoom and export."""

import csv
import io
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.console.readings import HARDWARE_ID, send_hour, send_reading
from tests.support.servers.processes import ServerProcess

MISSING = range(20, 27)
NEW = "AA:BB:CC:DD:EE:0A"
_DRAWN = """() => {
  const canvas = document.querySelector(".uplot canvas");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let at = 0; at < data.length; at += 4)
    if (data[at] === 0xc2 && data[at + 1] === 0x41 && data[at + 2] === 0x0c) count += 1;
  return count;
}"""
"""How many pixels have the colour of the first line."""


@pytest.fixture(scope="module")
def api_key(console: ServerProcess) -> str:
    made = httpx.post(
        f"{console.url}/telemetry/v1/api-keys", json={}, headers=console.operator, timeout=60
    ).json()
    return str(made["api_key"])


@pytest.fixture(scope="module")
def device(console: ServerProcess, api_key: str) -> str:
    send_hour(console, api_key, "Greenhouse", MISSING)
    return f"{console.url}/console/devices/{HARDWARE_ID}?range=1h"


def test_missing_readings_are_a_strip_and_are_told_in_words(operator: Page, device: str) -> None:
    operator.goto(device)
    strips = operator.locator("#gaps .strip")
    expect(strips).to_have_count(3)
    expect(operator.get_by_role("img", name="humidity: 2 gaps")).to_be_visible()
    both = strips.filter(has_text="any sensor").locator("rect.gap")
    box, gap = strips.first.locator("svg").bounding_box(), both.first.bounding_box()
    assert box is not None
    assert gap is not None
    assert gap["width"] / box["width"] == pytest.approx(len(MISSING) / 60, abs=0.02)
    said = operator.locator("#gaps li").filter(has_text="8 min")
    expect(said.locator("time")).to_have_count(2)


def test_sensors_are_shown_together_and_the_choice_is_in_the_address(
    operator: Page, device: str
) -> None:
    operator.goto(device)
    expect(operator.locator(".uplot")).to_have_count(2)
    for name in ("humidity", "temperature"):
        operator.get_by_role("checkbox", name=name).check()
    operator.get_by_role("button", name="Show together").click()
    expect(operator.locator(".uplot")).to_have_count(1)
    assert "with=humidity&with=temperature" in operator.url
    legend = operator.locator(".u-legend .u-label")
    expect(legend.filter(has_text="humidity")).to_be_visible()
    expect(legend.filter(has_text="temperature")).to_be_visible()


def test_a_range_is_chosen_and_a_part_of_it_zoomed_into(operator: Page, device: str) -> None:
    operator.goto(device)
    operator.get_by_role("link", name="24h").click()
    expect(operator.get_by_role("link", name="24h")).to_have_attribute("aria-current", "page")
    operator.goto(device)
    chart = operator.locator(".uplot .u-over").first
    expect(chart).to_be_visible()
    before = ticks(operator)
    box = chart.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    operator.mouse.move(box["x"] + box["width"] * 0.7, middle)
    operator.mouse.down()
    operator.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    operator.mouse.up()
    operator.wait_for_function(f"document.querySelector('[data-chart]').dataset.from != '{before}'")
    chart.dblclick()
    operator.wait_for_function(f"document.querySelector('[data-chart]').dataset.from == '{before}'")


def ticks(page: Page) -> str:
    """Where the first chart begins."""
    return str(page.locator("[data-chart]").first.get_attribute("data-from"))


def test_readings_are_exported(operator: Page, device: str) -> None:
    operator.goto(device)
    with operator.expect_download() as download:
        operator.get_by_role("link", name="Export CSV").click()
    rows = list(csv.DictReader(io.StringIO(Path(download.value.path()).read_text())))
    assert len(rows) == 60 - len(MISSING)
    with operator.expect_download() as download:
        operator.get_by_role("link", name="Export Parquet").click()
    assert Path(download.value.path()).read_bytes().startswith(b"PAR1")


def test_a_device_is_drawn_after_its_first_reading_and_found_by_name(
    operator: Page, console: ServerProcess, api_key: str
) -> None:
    send_reading(console, api_key, "Cellar north", hardware_id=NEW)
    operator.goto(f"{console.url}/console/devices")
    operator.get_by_label("Name or hardware id").fill("cellar NORTH")
    operator.get_by_role("button", name="Search").click()
    assert "q=cellar" in operator.url
    expect(operator.locator("#fleet tbody tr")).to_have_count(1)
    operator.get_by_role("link", name="Cellar north").click()
    expect(operator.get_by_role("link", name="24h")).to_have_attribute("aria-current", "page")
    expect(operator.locator(".uplot")).to_have_count(1)
    assert operator.evaluate(_DRAWN) > 5


def test_a_sensor_that_the_latest_reading_lacks_stays(
    operator: Page, console: ServerProcess, api_key: str
) -> None:
    send_reading(console, api_key, "Cellar north", hardware_id=NEW)
    send_reading(console, api_key, "Cellar north", hardware_id=NEW, sensor="humidity")
    operator.goto(f"{console.url}/console/devices/{NEW}")
    for sensor in ("humidity", "temperature"):
        expect(operator.get_by_role("heading", name=sensor)).to_contain_text("latest 21.5")


def test_a_device_is_deleted_with_its_readings(
    operator: Page, console: ServerProcess, api_key: str
) -> None:
    send_reading(console, api_key, "Cellar north", hardware_id=NEW)
    operator.goto(f"{console.url}/console/devices/{NEW}")
    operator.get_by_role("button", name="Delete this device").click()
    operator.get_by_role("button", name="Go on").click()
    expect(operator.get_by_role("heading", name="Fleet")).to_be_visible()
    expect(operator.get_by_text(NEW)).to_have_count(0)
    gone = httpx.get(
        f"{console.url}/telemetry/v1/devices/{NEW}", headers=console.operator, timeout=60
    )
    assert gone.status_code == 404
