"""Sandboxes at and beyond the bounds of their fields, templates, projects and names; none runs."""

import asyncio
from typing import Any

import pytest

from sandyard.kit.clock import utc_time
from sandyard.platform.schema.tables import sandboxes, templates
from tests.contract.platform.http.test_bad_input import CPUS, MEMORY, SHORT_NAMES, TEXTS, encoded
from tests.contract.platform.paid import project_of
from tests.support.platform.in_process import PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox, add_template, look

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
    ("network", (["none", "packages", "internet"], ["", "all", "None", 5, True, []]), True),
]
"""What each may be and may not be, and whether it can be changed later."""


@pytest.mark.timeout(600)
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
    for method, where, changes in (
        ("PATCH", path, {"name": "other"}),
        ("POST", f"{path}/start", None),
    ):
        answer = await api.call(method, where, ann, json=changes)
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


async def test_a_sandbox_may_be_in_no_project(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    assert sandbox["project_id"] is not None
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    moved = await api.call("PATCH", path, ann, json={"project_id": None})
    assert (moved.status_code, moved.json()["project_id"]) == (200, None)
    renamed = await api.call("PATCH", path, ann, json={"name": "alone"})
    assert renamed.json()["project_id"] is None
