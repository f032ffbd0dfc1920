"""Variables and secrets of projects and sandboxes, on each engine."""

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from sandyard.platform.events.verification import verify_platform
from sandyard.platform.schema.tables import variables
from sandyard.platform.variables.cipher import Cipher
from sandyard.platform.variables.errors import SecretUnreadableError
from tests.contract.platform.paid import project_of
from tests.support.platform.in_process import Caller, PlatformApi, code_of
from tests.support.platform.sandboxes import add_sandbox

SECRET_VALUE = "hunter2 ü\n"


async def put(api: PlatformApi, caller: Caller, path: str, name: str, **body: Any) -> Any:
    answer = await api.call("PUT", f"{path}/env/{name}", caller, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def holders_of(api: PlatformApi, caller: Caller) -> list[str]:
    sandbox = await add_sandbox(api, caller)
    return [f"/sandboxes/{sandbox['sandbox_id']}", f"/projects/{sandbox['project_id']}"]


async def test_a_variable_is_set_shown_changed_and_removed(api: PlatformApi) -> None:
    ann = await api.account()
    for path in await holders_of(api, ann):
        made = await put(api, ann, path, "B", value="one\ntwo")
        assert (made["name"], made["value"], made["is_secret"]) == ("B", "one\ntwo", False)
        await put(api, ann, path, "A", value=SECRET_VALUE, secret=True)
        listed = (await api.get(f"{path}/env", ann))["variables"]
        assert [(each["name"], each["value"]) for each in listed] == [
            ("A", None),
            ("B", "one\ntwo"),
        ]
        assert (await put(api, ann, path, "B", value=""))["value"] == ""
        assert (await api.call("DELETE", f"{path}/env/A", ann)).status_code == 204
        gone = await api.call("DELETE", f"{path}/env/A", ann)
        assert code_of(gone) == (404, "VARIABLE_NOT_FOUND")


async def test_variables_are_listed_by_name_in_pages(api: PlatformApi) -> None:
    ann = await api.account()
    first, second = await holders_of(api, ann)
    for path in (first, second):
        for name in ("C", "A", "D", "B", "E"):
            await put(api, ann, path, name, value=name)
    page = await api.get(f"{first}/env", ann, limit=3)
    rest = await api.get(f"{first}/env", ann, limit=3, cursor=page["next_cursor"])
    assert [each["name"] for each in page["variables"]] == ["A", "B", "C"]
    assert [each["name"] for each in rest["variables"]] == ["D", "E"]
    assert rest["next_cursor"] is None
    parameters = {"cursor": page["next_cursor"]}
    foreign = await api.call("GET", f"{second}/env", ann, params=parameters)
    assert code_of(foreign) == (400, "INVALID_CURSOR")


async def test_no_value_is_stored_or_told_in_the_clear(api: PlatformApi) -> None:
    ann = await api.account()
    [path, _] = await holders_of(api, ann)
    await put(api, ann, path, "TOKEN", value=SECRET_VALUE, secret=True)
    await put(api, ann, path, "TOKEN", value=SECRET_VALUE + "2", secret=True)
    await api.call("DELETE", f"{path}/env/TOKEN", ann)
    await put(api, ann, path, "OTHER", value=SECRET_VALUE)
    events = (await api.get("/events", ann))["events"]
    kinds = [each["kind"] for each in events if each["kind"].startswith("variable.")]
    assert kinds == [
        "variable.created",
        "variable.removed",
        "variable.updated",
        "variable.created",
    ]
    assert "TOKEN" in str(events)
    assert "hunter2" not in str(events)
    rows = await api.part.database.read(
        lambda connection: connection.execute(sa.select(variables)).all()
    )
    assert "OTHER" in str(rows)
    assert "hunter2" not in str(rows)
    assert (await verify_platform(api.part.database)).problems == []


async def test_of_many_at_once_one_is_made(api: PlatformApi) -> None:
    ann = await api.account()
    [path, _] = await holders_of(api, ann)
    await asyncio.gather(*(put(api, ann, path, "A", value=str(n)) for n in range(5)))
    [kept] = (await api.get(f"{path}/env", ann))["variables"]
    assert kept["value"] in set("01234")


async def test_a_quota_holds(api: PlatformApi) -> None:
    ann = await api.account()
    [path, _] = await holders_of(api, ann)
    quotas = {each["resource"]: each for each in (await api.get("/me/quota", ann))["quotas"]}
    assert quotas["variables_total"] == {"resource": "variables_total", "in_use": 0, "limit": 1000}
    await put(api, ann, path, "A", value="x")
    quotas = {each["resource"]: each for each in (await api.get("/me/quota", ann))["quotas"]}
    assert quotas["variables_total"]["in_use"] == 1


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("1A", {"value": "x"}),
        ("A-B", {"value": "x"}),
        ("A%3DB", {"value": "x"}),
        ("A" * 256, {"value": "x"}),
        ("A", {"value": "a\0b"}),
        ("A", {"value": "x" * 40_000}),
        ("A", {"value": None}),
        ("A", {"value": "x", "secret": "yes"}),
        ("A", {}),
    ],
)
async def test_bad_names_and_values_are_refused(
    api: PlatformApi, name: str, body: dict[str, Any]
) -> None:
    ann = await api.account()
    [path, _] = await holders_of(api, ann)
    answer = await api.call("PUT", f"{path}/env/{name}", ann, json=body)
    assert code_of(answer) == (400, "INVALID_REQUEST")


async def test_what_was_archived_or_recycled_is_not_changed(api: PlatformApi) -> None:
    ann = await api.account()
    sandbox = await add_sandbox(api, ann)
    project = await project_of(api, ann, "old")
    await api.post(f"/projects/{project}/archive", ann)
    await api.call("DELETE", f"/sandboxes/{sandbox['sandbox_id']}", ann)
    for path, code in (
        (f"/projects/{project}", "PROJECT_ARCHIVED"),
        (f"/sandboxes/{sandbox['sandbox_id']}", "SANDBOX_RECYCLED"),
    ):
        answer = await api.call("PUT", f"{path}/env/A", ann, json={"value": "x"})
        assert code_of(answer) == (409, code)


def test_keys_rotate() -> None:
    old, new = SecretStr("o" * 40).get_secret_value(), "n" * 40
    encrypted = Cipher([old]).encrypt(SECRET_VALUE)
    assert Cipher([new, old]).decrypt(encrypted) == SECRET_VALUE
    with pytest.raises(SecretUnreadableError):
        Cipher([new]).decrypt(encrypted)
    assert Cipher([new]).decrypt(Cipher([new, old]).encrypt("x")) == "x"
