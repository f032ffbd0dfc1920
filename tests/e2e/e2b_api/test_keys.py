"""Keys in E2B's form, and sandboxes that are the Platform's."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.e2e.e2b_api.conftest import E2bServer, e2b_key


def test_what_is_made_by_one_api_is_there_in_the_other(e2b: E2bServer) -> None:
    made = call(e2b, "POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60})
    assert made.status_code == 201
    sandbox_id = made.json()["sandboxID"]
    ann = e2b.people["ann"]
    shown = ann.call("GET", f"/sandboxes/{sandbox_id}")
    assert (shown["status"], shown["recycle_on_timeout"]) == ("running", True)
    history = ann.call("GET", f"/sandboxes/{sandbox_id}/history")["events"]
    assert {each["actor"].partition(":")[0] for each in history} == {"key"}
    ran = ann.call("POST", f"/sandboxes/{sandbox_id}/commands", {"command": "whoami"}, expect=201)
    assert ran["result"]["stdout"] == "user\n"
    assert call(e2b, "DELETE", f"/sandboxes/{sandbox_id}").status_code == 204
    assert ann.call("GET", f"/sandboxes/{sandbox_id}")["status"] == "recycled"


def test_one_idempotency_key_makes_one_sandbox(e2b: E2bServer) -> None:
    body = {"templateID": "base", "timeout": 60}
    first, second = (
        call(e2b, "POST", "/v2/sandboxes", body, **{"Idempotency-Key": "the-same"})
        for _ in range(2)
    )
    assert first.json()["sandboxID"] == second.json()["sandboxID"]
    assert call(e2b, "DELETE", f"/sandboxes/{first.json()['sandboxID']}").status_code == 204


def test_those_who_resume_it_together_all_have_it(e2b: E2bServer) -> None:
    made = call(e2b, "POST", "/v2/sandboxes", {"templateID": "base", "timeout": 60}).json()
    path = f"/sandboxes/{made['sandboxID']}"
    for again in ("connect", "resume"):
        assert call(e2b, "POST", f"{path}/pause").status_code == 204
        with ThreadPoolExecutor(5) as callers:
            waiting = [
                callers.submit(call, e2b, "POST", f"{path}/{again}", {"timeout": 60})
                for _ in range(5)
            ]
            answers = [each.result() for each in waiting]
        assert {each.status_code for each in answers} <= {200, 201, 409}, answers
        assert 201 in {each.status_code for each in answers}
        if again == "connect":
            assert all(each.status_code in (200, 201) for each in answers)
        assert call(e2b, "GET", path).json()["state"] == "running"
    assert call(e2b, "DELETE", path).status_code == 204


def test_a_key_that_may_look_does_not_get_in(e2b: E2bServer) -> None:
    sandbox_id = call(e2b, "POST", "/sandboxes", {"templateID": "base"}).json()["sandboxID"]
    reading = e2b_key(e2b.people["ann"], "read")
    seen = call(e2b, "GET", f"/sandboxes/{sandbox_id}", key=reading)
    assert seen.status_code == 200
    assert "envdAccessToken" not in seen.json()
    assert call(e2b, "DELETE", f"/sandboxes/{sandbox_id}", key=reading).status_code == 403
    assert call(e2b, "DELETE", f"/sandboxes/{sandbox_id}").status_code == 204


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v2/sandboxes", {}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "timeout": -1}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "metadata": {"a": 1}}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "iam": {"tokens": {"a": {}}}}, 501),
        (
            "POST",
            "/v2/sandboxes",
            {"templateID": "base", "volumeMounts": [{"name": "a", "path": "/a"}]},
            400,
        ),
        ("POST", "/v2/sandboxes", {"templateID": "nothing"}, 404),
        ("GET", "/v2/sandboxes?limit=0", None, 400),
        ("GET", "/v2/sandboxes?state=odd", None, 400),
        ("GET", "/v2/sandboxes?nextToken=odd", None, 400),
        ("GET", "/sandboxes/sbx-00000000000000000", None, 404),
        ("GET", "/sandboxes/odd", None, 404),
        ("PUT", "/sandboxes/odd", None, 405),
        ("POST", "/v3/templates", {}, 400),
        ("POST", "/v3/templates", {"name": "no/such:name here"}, 400),
        ("POST", "/templates", {"dockerfile": "FROM x"}, 501),
        ("POST", "/v2/templates/tpl-1/builds/odd", {}, 404),
        ("GET", "/templates/tpl-1/builds/odd/status", None, 404),
        ("GET", "/templates/tpl-1/files/odd", None, 404),
        ("PUT", "/templates/tpl-1/files/odd?signature=odd", None, 401),
        ("POST", "/templates/tags", {"target": "base:none", "tags": ["a"]}, 404),
        ("POST", "/sandboxes/sbx-00000000000000000/snapshots", {}, 404),
        ("POST", "/sandboxes/sbx-00000000000000000/fork", {"count": 0}, 400),
        (
            "POST",
            "/v2/sandboxes",
            {"templateID": "base", "network": {"allowOut": ["a.example"]}},
            400,
        ),
        ("POST", "/v2/sandboxes", {"templateID": "base", "network": {"denyOut": ["a.b"]}}, 400),
        ("POST", "/v2/sandboxes", {"templateID": "base", "network": {"httpsPorts": [49983]}}, 400),
        (
            "POST",
            "/v2/sandboxes",
            {"templateID": "base", "network": {"egressProxy": {"address": ""}}},
            501,
        ),
        ("GET", "/v2/sandboxes?order=odd", None, 400),
        ("GET", "/v2/sandboxes?startedAfter=odd", None, 400),
        ("POST", "/volumes", {"name": "a b"}, 400),
        ("GET", "/volumes/vol-00000000000000000", None, 404),
        ("GET", "/volumecontent/vol-1/dir?path=/", None, 401),
        ("GET", "/nothing", None, 404),
    ],
)
def test_what_is_wrong_is_told_in_e2b_s_shape(
    e2b: E2bServer, method: str, path: str, body: dict[str, object] | None, status: int
) -> None:
    answer = call(e2b, method, path, body)
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert told["code"] == status
    assert told["message"]
    assert answer.headers["should-retry"] == "false"


def test_teams_templates_and_no_credential(e2b: E2bServer) -> None:
    answers = [call(e2b, "GET", "/teams"), call(e2b, "GET", "/templates/aliases/base")]
    assert [each.status_code for each in answers] == [200, 200]
    without = httpx.get(f"{e2b.server.url}/e2b/v2/sandboxes", timeout=60)
    assert (without.status_code, without.json()["code"]) == (401, 401)


def call(
    e2b: E2bServer,
    method: str,
    path: str,
    body: object = None,
    *,
    key: str | None = None,
    **headers: str,
) -> httpx.Response:
    return httpx.request(
        method,
        f"{e2b.server.url}/e2b{path}",
        json=body,
        headers={"X-API-Key": key or e2b.keys["ann"], **headers},
        timeout=30,
    )
