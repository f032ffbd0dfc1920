"""Secrets that are bound to hosts, on each engine: what is stored, shown, counted and told."""

from typing import Any

import pytest

from sandyard.platform.events.verification import verify_platform
from sandyard.runtime.network_model import SecretUse
from tests.contract.platform.variables.test_variables import holders_of, put
from tests.support.platform.in_process import Caller, PlatformApi, code_of

VALUE = "sk-live-0123456789"
BINDING = {"hosts": ["api.example.com"], "paths": ["/v1"], "most_requests": 10}


async def bound(api: PlatformApi, ann: Caller, path: str, **more: Any) -> dict[str, Any]:
    body = {"value": VALUE, "secret": True, "binding": BINDING | more}
    found: dict[str, Any] = await put(api, ann, path, "API_KEY", **body)
    return found


async def test_a_sandbox_has_a_placeholder_that_stays(api: PlatformApi) -> None:
    ann = await api.account()
    [path, project] = await holders_of(api, ann)
    made = await bound(api, ann, project)
    assert made["value"] is None
    placeholder = made["binding"].pop("placeholder")
    assert placeholder.startswith("sandyard_secret_")
    assert made["binding"]["hosts"] == ["api.example.com"]
    assert "authorization" in made["binding"]["headers"]
    again = await bound(api, ann, project, hosts=["*.example.org"])
    assert again["binding"]["placeholder"] == placeholder
    await put(api, ann, project, "HIDDEN", value=VALUE, secret=True, binding={
        "hosts": ["a.example"], "sets_header": "X-Key",
    })  # fmt: skip
    sandbox = await api.part.wired.sandboxes.get(path.split("/")[2], account_id=None)
    assert await api.part.variables.of_sandbox(sandbox) == {"API_KEY": placeholder}
    secrets = await api.part.variables.secrets_of(sandbox, run="r")
    assert {each.name: each.value for each in secrets.bound} == {"API_KEY": VALUE, "HIDDEN": VALUE}
    assert VALUE not in repr(secrets)
    assert "PRIVATE" not in repr(secrets)
    plain = await put(api, ann, path, "API_KEY", value="own")
    assert plain["binding"] is None
    assert (await api.part.variables.of_sandbox(sandbox))["API_KEY"] == "own"
    assert VALUE not in str(await api.get("/events", ann))
    assert (await verify_platform(api.part.database)).problems == []


async def test_budgets_hold_over_all_runs_and_are_told_once(api: PlatformApi) -> None:
    ann = await api.account()
    [path, project] = await holders_of(api, ann)
    await bound(api, ann, project)
    variables = api.part.variables
    sandbox = await api.part.wired.sandboxes.get(path.split("/")[2], account_id=None)
    [secret] = await variables.bound_for(sandbox, run="one")
    assert secret.most_requests == 10
    await variables.note_uses("one", [SecretUse(secret.id, 4, 400)])
    await variables.note_uses("one", [SecretUse(secret.id, 6, 600)])
    assert [each.most_requests for each in await variables.bound_for(sandbox, run="one")] == [10]
    assert [each.most_requests for each in await variables.bound_for(sandbox, run="two")] == [4]
    for _ in range(2):
        await variables.note_uses("two", [SecretUse(secret.id, 4, 400)])
        await variables.note_uses("two", [SecretUse("env-gone", 4, 400)])
    titles = [each["title"] for each in (await api.get("/notifications", ann))["notifications"]]
    assert titles == ["The budget of API_KEY is used up"]
    [shown] = (await api.get(f"{project}/env", ann))["variables"]
    assert shown["budget_reached_at"] is not None
    raised = await bound(api, ann, project, most_requests=20)
    assert raised["budget_reached_at"] is None
    await api.call("DELETE", f"{project}/env/API_KEY", ann)
    assert await variables.store.uses([secret.id]) == {}
    assert (await verify_platform(api.part.database)).problems == []


@pytest.mark.parametrize(
    "body",
    [
        {"secret": False},
        {"value": "short"},
        {"value": "two\r\nlines and more"},
        {"value": "not ascii é and so on"},
        {"binding": {"hosts": []}},
        {"binding": {"hosts": ["https://api.example.com"]}},
        {"binding": {"hosts": ["*"]}},
        {"binding": {"hosts": ["a.example"], "paths": ["v1"]}},
        {"binding": {"hosts": ["a.example"], "headers": ["a b"]}},
        {"binding": {"hosts": ["a.example"], "most_requests": 0}},
    ],
)
async def test_what_could_not_be_sent_is_refused(api: PlatformApi, body: dict[str, Any]) -> None:
    ann = await api.account()
    [path, _] = await holders_of(api, ann)
    whole = {"value": VALUE, "secret": True, "binding": BINDING} | body
    answer = await api.call("PUT", f"{path}/env/API_KEY", ann, json=whole)
    assert code_of(answer)[0] == 400
