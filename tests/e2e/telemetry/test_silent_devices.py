"""Among more devices than a page holds, the silent ones come first."""

import re
from typing import Any

import httpx

from tests.e2e.telemetry.api import Api, code_of, random_mac


def listed(api: Api, **parameters: Any) -> dict[str, Any]:
    answer = api.client.get("/devices", headers=api.operator, params=parameters)
    page: dict[str, Any] = answer.raise_for_status().json()
    return page


def test_the_console_begins_with_those_that_have_been_silent_for_longest(api: Api) -> None:
    for _ in range(100):
        api.register(hardware_id=random_mac()).raise_for_status()
    silent = listed(api, order="silent", limit=100)
    assert listed(api, limit=1)["devices"][0] not in silent["devices"]
    seen = [each["last_seen_at"] for each in silent["devices"]]
    assert seen == sorted(seen)
    with httpx.Client(base_url=api.server.url, timeout=30) as browser:
        cookie = _operators_cookie(browser, api)
        page = browser.get("/console/devices", headers=cookie).text
        assert _shown(page) == [each["hardware_id"] for each in silent["devices"]]
        rest = browser.get(
            "/console/devices", headers=cookie, params={"cursor": silent["next_cursor"]}
        ).text
    assert _shown(rest) == [
        each["hardware_id"]
        for each in listed(api, order="silent", cursor=silent["next_cursor"])["devices"]
    ]
    assert f'hx-get="/console/devices?cursor={silent["next_cursor"]}"' in rest


def test_an_order_is_one_of_two_and_keeps_its_cursors(api: Api) -> None:
    api.register(hardware_id=random_mac()).raise_for_status()
    cursor = listed(api, order="silent", limit=1)["next_cursor"]
    for parameters, code in (
        ({"order": "oldest"}, "INVALID_REQUEST"),
        ({"order": "last_seen", "cursor": cursor}, "INVALID_CURSOR"),
        ({"cursor": cursor}, "INVALID_CURSOR"),
    ):
        answer = api.client.get("/devices", headers=api.operator, params=parameters)
        assert code_of(answer) == (400, code)


def _operators_cookie(browser: httpx.Client, api: Api) -> dict[str, str]:
    answer = browser.post(
        "/console/login/operator",
        data={"token": api.operator["Authorization"].removeprefix("Bearer ")},
        headers={"Sec-Fetch-Site": "same-origin"},
    )
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def _shown(page: str) -> list[str]:
    """The devices of the fleet's rows, in their order."""
    return re.findall(r'href="/console/devices/([0-9A-F%:]+)"', page.replace("%3A", ":"))
