"""Sandboxes at and beyond their bounds, in their listings and out of others' sight; none runs."""

import asyncio
import re
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.kit.ids import resource_id
from sandyard.platform.principal import Role
from sandyard.platform.tables import billing_records, sandbox_usage, sandboxes, templates
from tests.contract.platform.test_bad_input import (
    BAD_PARAMETERS,
    CPUS,
    MEMORY,
    SHORT_NAMES,
    TEXTS,
    encoded,
)
from tests.contract.platform.test_isolation import ODD_IDS, key_of
from tests.contract.platform.test_things import names
from tests.platforms import Caller, PlatformApi, code_of, counted_statements
from tests.sandboxes import add_sandbox, add_template, look

NAN = float("nan")
IDS: list[Any] = ["", "a" * 26, "TPL-A", "a b", "a\x00", "ä", "a\n", 5, [], True]
SECONDS: tuple[list[Any], list[Any]] = (
    [1, 7 * 86_400],
    [0, -1, 7 * 86_400 + 1, 10**30, 1.5, NAN, "60", True, []],
)
FIELDS: list[tuple[str, tuple[list[Any], list[Any]], bool]] = [
    ("name", (SHORT_NAMES[0], SHORT_NAMES[1][:-1]), True),
    ("description", (TEXTS[0][1:], TEXTS[1]), True),
    ("cpu_spec", (CPUS[0], [NAN, *(each for each in CPUS[1] if each is not None)]), True),
    ("memory_spec", (MEMORY[0], [NAN, *(each for each in MEMORY[1] if each is not None)]), True),
    ("max_running_seconds", SECONDS, True),
    ("template_id", ([], [*IDS, None]), False),
    ("project_id", ([None], IDS), False),
]
"""What each may be and may not be, and whether it can be changed later."""
CALLS = [
    ("GET", "/sandboxes/{}", None),
    ("PATCH", "/sandboxes/{}", {"name": "taken over"}),
    ("PATCH", "/sandboxes/{}", {}),
    ("POST", "/sandboxes/{}/start", None),
    ("POST", "/sandboxes/{}/stop", None),
    ("GET", "/sandboxes/{}/logs", None),
    ("GET", "/sandboxes/{}/logs?follow=true", None),
    ("GET", "/sandboxes/{}/metrics", None),
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
USAGE = dict.fromkeys(
    [
        *("running_seconds", "cpu_hours", "memory_hours", "storage_hours"),
        *("cpu", "memory_gb", "storage_gb", "cost", "is_billed"),
    ],
    0,
)


async def project_of(api: PlatformApi, caller: Caller, name: str = "other") -> str:
    return str((await api.post("/projects", caller, {"name": name}))["project_id"])


async def paid_sandbox(api: PlatformApi, caller: Caller, rows: int = 1) -> dict[str, Any]:
    """A sandbox that runs, as far as its rows tell, with so many runs before and their bills."""
    sandbox = await add_sandbox(api, caller)
    now = utc_time(api.clock.now())
    row = {"sandbox_id": sandbox["sandbox_id"], "user_account_id": caller.account_id}
    row |= {"service_type": "sandbox_runtime", "hourly_rate": 1, "created_at": now}
    ids = [resource_id("usg") for _ in range(rows + 1)]
    run = row | USAGE | {"start_time": now, "end_time": now}
    usages: list[Any] = [run | {"usage_id": each} for each in ids]
    usages[-1]["end_time"] = None
    bill = row | {"billing_date": now, "usage_seconds": 1, "amount": 1}
    bills = [bill | {"usage_id": each, "billing_id": resource_id("bil")} for each in ids]

    def work(connection: Any) -> None:
        connection.execute(sandbox_usage.insert(), usages)
        connection.execute(billing_records.insert(), bills)

    await api.part.database.write(work)
    return sandbox


async def test_every_field_at_and_beyond_its_bounds(api: PlatformApi) -> None:
    ann = await api.account()
    template_id = await add_template(api)
    kept = await add_sandbox(api, ann, template_id=template_id)
    path = f"/sandboxes/{kept['sandbox_id']}"
    headers = {"Content-Type": "application/json"}
    tried = 0
    for field, (good, bad), can_change in FIELDS:
        for value in [*good, *bad]:
            new = {"name": f"box {tried}", "template_id": template_id} | {field: value}
            for method, where, body in (
                ("POST", "/sandboxes", new),
                ("PATCH", path, {field: value}),
            )[: 1 + can_change]:
                tried += 1
                answer = await api.call(method, where, ann, content=encoded(body), headers=headers)
                what = (method, field, value, answer.text)
                if any(value is each for each in bad):
                    assert code_of(answer) == (400, "INVALID_REQUEST"), what
                    assert field in answer.json()["error"]["message"], what
                    continue
                assert answer.is_success, what
                assert answer.json()[field] == value or value is None, what
                if method == "POST":  # the name is free again
                    await api.call("DELETE", f"/sandboxes/{answer.json()['sandbox_id']}", ann)
    assert tried > 130


async def test_unknown_and_missing_fields_and_no_json_are_told(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    base = {"name": "box", "template_id": sandbox["template_id"]}
    new, change = ("POST", "/sandboxes"), ("PATCH", f"/sandboxes/{sandbox['sandbox_id']}")
    bodies = [(new, {"name": "box"}, "template_id"), (new, base | {"name": None}, "name")]
    for field in ("surprise", "status", "sandbox_id", "owner_account_id", "cost"):
        bodies += [(new, base | {field: "x"}, field), (change, {field: "x"}, field)]
    for call, body, told in bodies:
        answer = await api.call(*call, ann, json=body)
        assert code_of(answer) == (400, "INVALID_REQUEST"), (call, body)
        assert told in answer.json()["error"]["message"]
    headers = {"Content-Type": "application/json"}
    for content in (b"", b"{", b"[]", b"null", b'"a"', b"\xff"):
        for call in (new, change):
            answer = await api.call(*call, ann, content=content, headers=headers)
            assert answer.status_code == 400, (call, content, answer.text)


async def test_it_is_made_of_a_template_that_its_owner_may_use(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    theirs = {"owner_account_id": bob.account_id}
    private = await add_template(api, **theirs)
    deleted = await add_template(api, deleted_at=utc_time(api.clock.now()))
    for template_id in ("tpl-unknown", private, deleted):
        body = {"name": "mine", "template_id": template_id}
        answer = await api.call("POST", "/sandboxes", ann, json=body)
        assert code_of(answer) == (400, "TEMPLATE_NOT_USABLE"), template_id
    assert (await api.get("/sandboxes", ann))["sandboxes"] == []
    shared = await add_template(api, is_public=True, **theirs)
    await add_sandbox(api, ann, template_id=shared)
    await add_sandbox(api, bob, template_id=private)


async def test_it_is_at_least_what_its_template_needs(api: PlatformApi) -> None:
    ann = await api.account()
    template_id = await add_template(api, min_cpu_required=2.0, min_memory_required=4.0)
    enough = {"template_id": template_id, "cpu_spec": 2, "memory_spec": 4}
    sandbox = await add_sandbox(api, ann, **enough)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    for less in ({"cpu_spec": 1.99}, {"memory_spec": 3.99}, {"cpu_spec": 1, "memory_spec": 0.5}):
        for method, where, body in (
            ("POST", "/sandboxes", {"name": "less"} | enough | less),
            ("PATCH", path, less),
        ):
            answer = await api.call(method, where, ann, json=body)
            assert code_of(answer) == (400, "RESOURCES_TOO_SMALL"), (method, less)
            needs = {"min_cpu_required": 2, "min_memory_required": 4}
            assert answer.json()["error"]["details"] == needs
    assert (await look(api, ann, sandbox)) == sandbox


@pytest.mark.parametrize(("method", "ending"), [("DELETE", ""), ("POST", "/archive")])
async def test_none_comes_into_a_project_that_ends_at_the_same_time(
    api: PlatformApi, method: str, ending: str
) -> None:
    ann = await api.account()
    template_id = await add_template(api)
    for round_ in range(8):
        project_id = await project_of(api, ann, f"project-{round_}")
        new = {"template_id": template_id, "project_id": project_id}
        calls = [
            api.call("POST", "/sandboxes", ann, json=new | {"name": f"{round_}-{number}"})
            for number in range(6)
        ]
        calls.insert(3, api.call(method, f"/projects/{project_id}{ending}", ann))
        answers = await asyncio.gather(*calls)
        has_ended = answers.pop(3).is_success
        made = sum(answer.is_success for answer in answers)
        refused = {code_of(answer) for answer in answers if not answer.is_success}
        assert refused <= {(400, "PROJECT_NOT_USABLE"), (409, "PROJECT_READ_ONLY")}
        if method == "DELETE":
            assert has_ended == (made == 0)
        late = await api.call("POST", "/sandboxes", ann, json=new | {"name": f"{round_}-late"})
        assert late.is_success != has_ended


async def test_an_archived_project_takes_no_sandbox_and_starts_and_changes_none(
    api: PlatformApi,
) -> None:
    ann = await api.account()
    project_id = await project_of(api, ann)
    sandbox = await add_sandbox(api, ann, project_id=project_id)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    await api.post(f"/projects/{project_id}/archive", ann)
    new = {"name": "new", "template_id": sandbox["template_id"], "project_id": project_id}
    for method, where, body in (
        ("POST", "/sandboxes", new),
        ("POST", f"{path}/start", None),
        ("PATCH", path, {"name": "new"}),
        ("PATCH", path, {"cpu_spec": 2}),
    ):
        answer = await api.call(method, where, ann, json=body)
        assert code_of(answer) == (409, "PROJECT_READ_ONLY"), (method, where)
    assert await look(api, ann, sandbox) == sandbox
    assert (await api.post(f"{path}/stop", ann))["status"] == "created"
    assert (await api.call("DELETE", path, ann)).json()["status"] == "recycled"


async def test_it_belongs_to_a_project_of_its_owner(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    deleted, theirs = await project_of(api, ann), await project_of(api, bob)
    await api.call("DELETE", f"/projects/{deleted}", ann)
    for project_id in (theirs, deleted, "prj-unknown"):
        body = {"name": "a", "template_id": await add_template(api), "project_id": project_id}
        answer = await api.call("POST", "/sandboxes", ann, json=body)
        assert code_of(answer) == (400, "PROJECT_NOT_USABLE"), project_id
    [default] = (await api.get("/projects", ann, is_default=True))["projects"]
    assert (await add_sandbox(api, ann))["project_id"] == default["project_id"]


async def test_its_name_is_its_owners_alone_until_it_is_recycled(api: PlatformApi) -> None:
    ann, bob = await api.account(), await api.account()
    first = await add_sandbox(api, ann, name="mine")
    second = await add_sandbox(api, ann, name="Mine")
    await add_sandbox(api, bob, name="mine")
    template_id = first["template_id"]
    for method, where, body in (
        ("POST", "/sandboxes", {"name": "mine", "template_id": template_id}),
        ("PATCH", f"/sandboxes/{second['sandbox_id']}", {"name": "mine"}),
    ):
        answer = await api.call(method, where, ann, json=body)
        assert code_of(answer) == (409, "SANDBOX_NAME_TAKEN"), method
    path = f"/sandboxes/{first['sandbox_id']}"
    assert (await api.call("PATCH", path, ann, json={"name": "mine"})).is_success
    for _ in range(2):
        assert (await api.call("DELETE", path, ann)).json()["status"] == "recycled"
    again = await add_sandbox(api, ann, name="mine")
    assert again["sandbox_id"] != first["sandbox_id"]
    for method, where in (("PATCH", path), ("POST", f"{path}/start")):
        answer = await api.call(method, where, ann, json={"name": "other"})
        assert code_of(answer) == (409, "SANDBOX_RECYCLED"), method


async def test_its_name_and_description_change_at_any_time(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann, description="first")
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    api.clock.advance(60)
    renamed = (await api.call("PATCH", path, ann, json={"name": "other"})).json()
    assert (renamed["name"], renamed["description"]) == ("other", "first")
    assert renamed["updated_at"] > sandbox["updated_at"]
    runs = sandboxes.update().values(status="running", attempt=1)
    await api.part.database.write(lambda connection: connection.execute(runs))
    answer = await api.call("PATCH", path, ann, json={"name": "third", "description": "second"})
    assert answer.json()["description"] == "second"
    for resource in ({"cpu_spec": 2}, {"memory_spec": 2}, {"max_running_seconds": 60}):
        answer = await api.call("PATCH", path, ann, json=resource)
        assert code_of(answer) == (409, "SANDBOX_ACTIVE"), resource


async def test_its_name_changes_although_its_template_is_gone(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    gone = templates.update().values(deleted_at=utc_time(api.clock.now()))
    await api.part.database.write(lambda connection: connection.execute(gone))
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    answer = await api.call("PATCH", path, ann, json={"name": "other"})
    assert answer.is_success, answer.text


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
            for name in ("sandbox_id", "project_id", "template_id", None):
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
