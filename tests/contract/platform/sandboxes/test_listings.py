"""Sandboxes in their listings and out of others' sight."""

import re

import pytest

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.access.principal import Role
from sandyard.platform.measurements.model import Measurement
from sandyard.platform.schema.tables import sandboxes
from tests.contract.platform.access.test_isolation import ODD_IDS, key_of
from tests.contract.platform.http.test_bad_input import BAD_PARAMETERS
from tests.contract.platform.paid import paid_sandbox, project_of
from tests.contract.platform.test_resources import names
from tests.support.platform.in_process import PlatformApi, code_of, counted_statements
from tests.support.platform.sandboxes import add_sandbox, add_template, look

CALLS = [
    ("GET", "/sandboxes/{}", None),
    ("PATCH", "/sandboxes/{}", {"name": "taken over"}),
    ("PATCH", "/sandboxes/{}", {}),
    ("POST", "/sandboxes/{}/start", None),
    ("POST", "/sandboxes/{}/stop", None),
    ("GET", "/sandboxes/{}/logs", None),
    ("GET", "/sandboxes/{}/logs?follow=true", None),
    ("GET", "/sandboxes/{}/metrics", None),
    ("GET", "/sandboxes/{}/metrics/samples", None),
    ("DELETE", "/sandboxes/{}", None),
]
LISTS = ["/sandboxes", "/usage", "/billing"]
BAD_FILTERS = [
    *(("/sandboxes", "status", value) for value in ("", "gone", "RUNNING")),
    *(("/sandboxes", "sort", value) for value in ("", "id", "--name", "name,id", "cost")),
    *(("/sandboxes", "q", value) for value in ("", "\x00", "a" * 101)),
    *((path, name, value) for path in LISTS for name in ("project_id",) for value in ("A", "%")),
    *((path, "sandbox_id", value) for path in LISTS[1:] for value in ("A", "a" * 26, "\x00")),
    ("/sandboxes", "template_id", "é"),
    *((path, "service_type", value) for path in LISTS[1:] for value in ("", "network")),
    ("/usage", "is_open", "perhaps"),
    *(("/usage", "from", value) for value in ("", "x", "2027-01-01", "2027-01-01T00:00:00")),
    *(("/billing", "to", value) for value in ("", "x", "2027-02-30", "2027-01-01T00:00:01Z")),
    *(("/billing/summary", "by", value) for value in ("", "hour", "account")),
    ("/billing/export", "from", "yesterday"),
]


async def test_a_listing_is_filtered_sorted_searched_and_paged(api: PlatformApi) -> None:
    ann = await api.account()
    template_id, project_id = await add_template(api), await project_of(api, ann)
    made = []
    for number, name in enumerate(("delta 1", "Alpha 2", "charlie 3", "Bravo_4", "echo 100%")):
        api.clock.advance(number % 2)  # so that some are made at the same time
        place = {"template_id": template_id} if number % 2 else {"project_id": project_id}
        made.append(await add_sandbox(api, ann, name=name, **place))
    delta, alpha, charlie, bravo, echo = in_time = [sandbox["name"] for sandbox in made]
    assert await names(api, "/sandboxes", ann, sort="created_at") == in_time
    assert await names(api, "/sandboxes", ann) == in_time[::-1]
    by_name = await names(api, "/sandboxes", ann, sort="name")
    assert sorted(by_name) == sorted(in_time)
    assert await names(api, "/sandboxes", ann, sort="-name") == by_name[::-1]
    api.clock.advance(5)
    await api.call("PATCH", f"/sandboxes/{made[1]['sandbox_id']}", ann, json={"description": "x"})
    assert (await names(api, "/sandboxes", ann, sort="-updated_at"))[0] == alpha
    assert (await names(api, "/sandboxes", ann, sort="updated_at"))[-1] == alpha
    assert await names(api, "/sandboxes", ann, template_id=template_id) == [bravo, alpha]
    of_project = await names(api, "/sandboxes", ann, project_id=project_id)
    assert of_project == [echo, charlie, delta]
    await api.call("DELETE", f"/sandboxes/{made[2]['sandbox_id']}", ann)
    assert await names(api, "/sandboxes", ann, status="recycled") == [charlie]
    assert await names(api, "/sandboxes", ann, status="running") == []
    assert len(await names(api, "/sandboxes", ann, status="created")) == 4
    for letters, found in (("ALPHA", alpha), ("_", bravo), ("%", echo), ("a 1", delta)):
        assert await names(api, "/sandboxes", ann, q=letters) == [found], letters
    both = await names(api, "/sandboxes", ann, q="a", template_id=template_id, sort="created_at")
    assert both == [alpha, bravo]


@pytest.mark.parametrize("name", ["Ärger", "ÄRGER 日本", "ärger"])
async def test_a_name_is_found_by_itself(api: PlatformApi, name: str) -> None:
    ann = await api.account()
    await add_sandbox(api, ann, name=name)
    assert await names(api, "/sandboxes", ann, q=name) == [name]


async def test_parameters_of_listings(api: PlatformApi) -> None:
    ann = await api.account()
    for path in LISTS:
        for limit in ("1", "100"):
            await api.get(path, ann, limit=limit)
        for parameters in BAD_PARAMETERS:
            answer = await api.call("GET", path, ann, params=parameters)
            assert answer.status_code == 400, (path, parameters, answer.text)
    for path, name, value in BAD_FILTERS:
        answer = await api.call("GET", path, ann, params={name: value})
        assert code_of(answer) == (400, "INVALID_REQUEST"), (path, name, value)
        assert name in answer.json()["error"]["message"]


async def test_samples_have_ids(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox_id = (await add_sandbox(api, ann))["sandbox_id"]
    path, now = f"/sandboxes/{sandbox_id}/metrics/samples", utc_time(api.clock.now())
    ids = [resource_id("mtr") for _ in range(3)]
    samples = [
        Measurement(each, sandbox_id, now, 1.5, 2, number) for number, each in enumerate(ids)
    ]
    await api.part.wired.measurements.add(samples)
    first = await api.get(path, ann, limit=2)
    second = await api.get(path, ann, limit=2, cursor=first["next_cursor"])
    found = [*first["samples"], *second["samples"]]
    assert [each["metric_id"] for each in found] == ids[::-1]
    assert all(len(each["metric_id"]) == len("mtr-") + 12 for each in found)
    assert (found[0]["cpu_utilization"], found[0]["storage_utilization"]) == (1.5, 2)
    assert found[0]["sandbox_id"] == sandbox_id


async def test_parameters_of_metrics_and_logs(api: PlatformApi) -> None:
    ann = await api.account()
    path = f"/sandboxes/{(await add_sandbox(api, ann))['sandbox_id']}"
    at = "2027-01-01T00:00:00Z"
    for name, value in (
        *(("bucket", value) for value in ("", "0m", "1", "m", "1w", "-1s", "1234567s", "1m\n")),
        *((name, value) for name in ("from", "to") for value in ("", "x", at[:-1], "1e99")),
    ):
        answer = await api.call("GET", f"{path}/metrics", ann, params={name: value})
        assert code_of(answer) == (400, "INVALID_REQUEST"), (name, value)
    for span in (
        {"from": at, "to": at},
        {"from": at, "to": "2026-01-01T00:00:00Z"},
        {"from": at, "to": "2027-01-01T02:46:41Z", "bucket": "1s"},
        {"from": "9999-12-31T23:59:59-01:00"},
        {"to": "0001-01-01T00:00:00Z"},
        {"to": "0001-01-01T00:00:00+23:59"},
    ):
        answer = await api.call("GET", f"{path}/metrics", ann, params=span)
        assert code_of(answer) == (400, "INVALID_SPAN"), span
    most = {"from": at, "to": "2027-01-01T02:46:40Z", "bucket": "1s"}
    assert (await api.get(f"{path}/metrics", ann, **most))["metrics"] == []
    assert (await api.get(f"{path}/metrics", ann, bucket="999999d"))["bucket_seconds"] > 10**10
    for value in ("0", "1001", "x", ""):
        answer = await api.call("GET", f"{path}/logs", ann, params={"lines": value})
        assert code_of(answer) == (400, "INVALID_REQUEST"), value
    for follow in (False, True):
        answer = await api.call("GET", f"{path}/logs", ann, params={"follow": follow})
        assert code_of(answer) == (409, "NEVER_STARTED")


async def test_a_recycled_one_has_no_logs_any_more(api: PlatformApi) -> None:
    ann = await api.account()
    path = f"/sandboxes/{(await add_sandbox(api, ann))['sandbox_id']}"
    gone = sandboxes.update().values(status="recycled", attempt=1)
    await api.part.database.write(lambda connection: connection.execute(gone))
    assert (await api.get(f"{path}/logs", ann))["lines"] == []
    assert (await api.call("GET", f"{path}/logs?follow=true", ann)).text == ""


@pytest.mark.parametrize("path", LISTS)
async def test_a_cursor_is_good_for_its_own_listing_alone(api: PlatformApi, path: str) -> None:
    ann, bob = await api.account(), await api.account()
    cursors = []
    for caller in (ann, bob):
        for _ in range(2):
            await paid_sandbox(api, caller)
        cursors.append((await api.get(path, caller, limit=1))["next_cursor"])
    cursor, foreign = cursors
    others = [(each, {"cursor": cursor}) for each in LISTS if each != path]
    tampered = [
        cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        for place in range(0, len(cursor), 3)
    ]
    own = [(path, {"cursor": each}) for each in (foreign, cursor[:-1], *tampered)]
    for where, parameters in (*others, *own):
        answer = await api.call("GET", where, ann, params=parameters)
        assert code_of(answer) == (400, "INVALID_CURSOR"), (where, parameters)
    assert (await api.get(path, ann, cursor=cursor))["next_cursor"] is None


async def test_a_cursor_is_good_for_its_own_filters_and_order_alone(api: PlatformApi) -> None:
    ann = await api.account()
    for _ in range(3):
        await paid_sandbox(api, ann)
        for kind in ("/projects", "/api-keys"):
            await api.post(kind, ann, {"name": resource_id("prj")})
        await add_template(api)
    for path, parameters in (
        *(("/projects", {"q": "x"}), ("/api-keys", {"is_active": "true"})),
        ("/templates", {"visibility": "official"}),
        *(("/sandboxes", {"sort": sort}) for sort in ("created_at", "-updated_at", "name")),
        *(("/sandboxes", {"q": "x"}), ("/sandboxes", {"status": "created"})),
        *(("/usage", {"is_open": "true"}), ("/billing", {"service_type": "storage"})),
    ):
        cursor = (await api.get(path, ann, limit=1))["next_cursor"]
        answer = await api.call("GET", path, ann, params=parameters | {"cursor": cursor})
        assert code_of(answer) == (400, "INVALID_CURSOR"), (path, parameters)


@pytest.mark.parametrize("role", Role)
async def test_anothers_are_not_found_by_login_or_key(api: PlatformApi, role: Role) -> None:
    ann, bob = await api.account(), await api.account(role=role)
    theirs = await paid_sandbox(api, ann)
    before = await look(api, ann, theirs)
    for caller in (bob, await key_of(api, bob)):
        for method, path, body in CALLS:
            there = path.format(theirs["sandbox_id"])
            answer = await api.call(method, there, caller, json=body)
            assert code_of(answer) == (404, "SANDBOX_UNKNOWN"), (method, path)
        for path in (*LISTS, "/billing/summary", "/billing/export"):
            other = "template_id" if path == "/sandboxes" else "sandbox_id"
            for name in (other, "project_id", None):
                parameters = {name: theirs[name]} if name else {}
                answer = await api.call("GET", path, caller, params=parameters)
                assert answer.status_code == 200
                assert not re.search(r"(sbx|usg|bil)-|[1-9]\.0", answer.text), (path, name)
        summary = await api.get("/billing/summary", caller, by="sandbox")
        assert (summary["sums"], float(summary["total"])) == ([], 0)
    assert await look(api, ann, theirs) == before
    for path in (*LISTS, "/billing/summary?by=sandbox", "/billing/export"):
        assert theirs["sandbox_id"] in (await api.call("GET", path, ann)).text


async def test_ids_that_nobody_made_are_not_found(api: PlatformApi) -> None:
    ann = await api.account()
    for odd in ODD_IDS:
        for method, path, body in CALLS:
            answer = await api.call(method, path.format(odd), ann, json=body)
            assert answer.status_code == 404, (method, path, odd, answer.text)


async def test_the_statements_of_a_listing_do_not_grow_with_its_rows(api: PlatformApi) -> None:
    ann = await api.account()
    counts: list[dict[str, int]] = []
    for rows in (1, 12):
        for _ in range(rows):
            await paid_sandbox(api, ann, rows)
        found = {}
        for path in (*LISTS, "/billing/summary?by=sandbox"):
            with counted_statements() as statements:
                page = (await api.call("GET", path, ann)).json()
            assert max(len(value) for value in page.values() if isinstance(value, list)) >= rows
            found[path] = sum("SELECT" in statement for statement in statements)
        counts.append(found)
    assert counts[0] == counts[1]
    assert list(counts[1].values()) == [4, 2, 2, 2], "a sandbox's cost takes two more"
