"""No account's key, token or link opens anything of another's."""

import base64
import hashlib
from typing import Any

import httpx
import pytest

from tests.e2e.e2b_api.conftest import E2bServer
from tests.e2e.e2b_api.test_keys import call


@pytest.fixture(scope="module")
def sandboxes(e2b: E2bServer) -> dict[str, Any]:
    """One of each account, each with a file of the same name."""
    made = {}
    for name, key in e2b.keys.items():
        body = {"templateID": "base", "timeout": 600, "metadata": {"whose": name}}
        made[name] = call(e2b, "POST", "/v2/sandboxes", body, key=key).json()
        sent = files(e2b, made[name]["sandboxID"], made[name]["envdAccessToken"], name.encode())
        assert sent.status_code == 200, sent.text
    return made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("POST", "/timeout", {"timeout": 1}),
        ("POST", "/refreshes", {"duration": 1}),
        ("POST", "/pause", {}),
        ("POST", "/resume", {}),
        ("POST", "/connect", {"timeout": 10}),
        ("GET", "/logs", None),
        ("GET", "/metrics", None),
        ("POST", "/snapshots", {}),
        ("POST", "/fork", {}),
        ("PUT", "/network", {"allow_internet_access": False}),
    ],
)
def test_another_s_sandbox_is_none(
    e2b: E2bServer, sandboxes: dict[str, Any], method: str, path: str, body: object
) -> None:
    whole = f"/sandboxes/{sandboxes['ann']['sandboxID']}{path}"
    answer = call(e2b, method, whole, body, key=e2b.keys["bob"])
    missing = call(e2b, method, f"/sandboxes/sbx-{'0' * 17}{path}", body, key=e2b.keys["bob"])
    assert (answer.status_code, missing.status_code) == (404, 404)
    assert call(e2b, "GET", f"/sandboxes/{sandboxes['ann']['sandboxID']}").status_code == 200


def test_lists_and_measurements_have_one_s_own_alone(
    e2b: E2bServer, sandboxes: dict[str, Any]
) -> None:
    listed = call(e2b, "GET", "/v2/sandboxes", key=e2b.keys["bob"]).json()
    assert [each["metadata"]["whose"] for each in listed] == ["bob"]
    ids = ",".join(each["sandboxID"] for each in sandboxes.values())
    measured = call(e2b, "GET", f"/sandboxes/metrics?sandbox_ids={ids}", key=e2b.keys["bob"])
    assert set(measured.json()["sandboxes"]) <= {sandboxes["bob"]["sandboxID"]}


@pytest.mark.parametrize("moment", ["1e30", "-1", "nan", "inf", "soon", "253402300800"])
def test_measurements_of_a_time_that_no_calendar_has_are_refused(
    e2b: E2bServer, sandboxes: dict[str, Any], moment: str
) -> None:
    path = f"/sandboxes/{sandboxes['ann']['sandboxID']}/metrics"
    for name in ("start", "end"):
        assert call(e2b, "GET", f"{path}?{name}={moment}").status_code == 400


def test_another_s_snapshots_and_builds_are_none(e2b: E2bServer, sandboxes: dict[str, Any]) -> None:
    """Nor is a build of hers continued, or fed with files."""
    ann, bob = sandboxes["ann"]["sandboxID"], e2b.keys["bob"]
    made = call(e2b, "POST", f"/sandboxes/{ann}/snapshots", {"name": "hers"}).json()["snapshotID"]
    for name in (made, "hers"):
        begun = call(e2b, "POST", "/v2/sandboxes", {"templateID": name}, key=bob)
        assert begun.status_code == 404, begun.text
        assert call(e2b, "GET", f"/templates/{name}", key=bob).status_code == 404
        assert call(e2b, "DELETE", f"/templates/{name}", key=bob).status_code == 404
        tagged = {"target": f"{name}:default", "tags": ["mine"]}
        assert call(e2b, "POST", "/templates/tags", tagged, key=bob).status_code == 404
    assert call(e2b, "GET", "/snapshots", key=bob).json() == []
    assert call(e2b, "GET", f"/snapshots?sandboxID={ann}", key=bob).json() == []
    build = call(e2b, "POST", "/v3/templates", {"name": "built"}).json()
    path = f"/templates/{build['templateID']}"
    status = f"{path}/builds/{build['buildID']}/status"
    assert call(e2b, "POST", f"/v2{path}/builds/{build['buildID']}", {}, key=bob).status_code == 404
    assert call(e2b, "GET", status, key=bob).status_code == 404
    assert call(e2b, "GET", f"{path}/files/hash", key=bob).status_code == 404
    link = httpx.URL(call(e2b, "GET", f"{path}/files/hash").json()["url"])
    for altered in (
        link.copy_with(path=link.path.replace("hash", "other")),
        link.copy_set_param("signature", "0" * 64),
        link.copy_remove_param("signature"),
    ):
        assert httpx.put(altered, content=b"x", timeout=60).status_code == 401
    assert httpx.put(link, content=b"x", timeout=60).status_code == 200
    assert call(e2b, "GET", status).json()["status"] == "waiting"
    assert call(e2b, "DELETE", f"/templates/{made}").status_code == 204


def test_a_key_that_runs_deletes_no_template_of_the_platform(e2b: E2bServer) -> None:
    assert call(e2b, "DELETE", "/templates/base").status_code == 403


@pytest.mark.parametrize("token", [None, "", "0" * 64, "theirs", "key"])
def test_a_token_opens_its_own_sandbox_alone(
    e2b: E2bServer, sandboxes: dict[str, Any], token: str | None
) -> None:
    sandbox_id = sandboxes["ann"]["sandboxID"]
    known = {"theirs": sandboxes["bob"]["envdAccessToken"], "key": e2b.keys["bob"]}
    sent = known.get(token or "", token)
    assert files(e2b, sandbox_id, sent).status_code == 401
    assert files(e2b, sandbox_id, sent, b"changed").status_code == 401
    refused = rpc(e2b, sandbox_id, sent, "process.Process/List", {})
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert files(e2b, sandbox_id, sandboxes["ann"]["envdAccessToken"]).content == b"ann"


def test_a_link_opens_what_it_was_made_for_alone(e2b: E2bServer, sandboxes: dict[str, Any]) -> None:
    """At the one origin the signature itself tells whose file it is."""
    link = signed("file", "read", sandboxes["bob"]["envdAccessToken"])
    assert httpx.get(f"{e2b.server.url}/files", params=link, timeout=60).content == b"bob"
    hosts = {name: f"49983-{each['sandboxID']}.localhost" for name, each in sandboxes.items()}
    answers = {
        name: httpx.get(f"{e2b.server.url}/files", params=link, headers={"Host": host}, timeout=60)
        for name, host in hosts.items()
    }
    assert {name: each.status_code for name, each in answers.items()} == {"ann": 401, "bob": 200}
    for changed in (
        {"path": "other"},
        {"username": "root"},
        {"signature_expiration": "9999999999"},
    ):
        altered = httpx.get(f"{e2b.server.url}/files", params=link | changed, timeout=60)
        assert altered.status_code == 401
    assert (
        httpx.post(f"{e2b.server.url}/files", params=link, content=b"x", timeout=60).status_code
        == 401
    )


def test_a_watch_is_its_own_sandbox_s_alone(e2b: E2bServer, sandboxes: dict[str, Any]) -> None:
    ann, bob = sandboxes["ann"], sandboxes["bob"]
    created = rpc(
        e2b,
        ann["sandboxID"],
        ann["envdAccessToken"],
        "filesystem.Filesystem/CreateWatcher",
        {"path": "/home/user"},
    )
    for name in ("GetWatcherEvents", "RemoveWatcher"):
        refused = rpc(
            e2b,
            bob["sandboxID"],
            bob["envdAccessToken"],
            f"filesystem.Filesystem/{name}",
            created.json(),
        )
        assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


def test_binary_messages_are_refused(e2b: E2bServer, sandboxes: dict[str, Any]) -> None:
    ann = sandboxes["ann"]
    for kind in ("application/proto", "application/connect+proto", "text/plain"):
        refused = httpx.post(
            f"{e2b.server.url}/e2b/process.Process/List",
            content=b"\x0a",
            headers={
                "Content-Type": kind,
                "E2b-Sandbox-Id": ann["sandboxID"],
                "X-Access-Token": ann["envdAccessToken"],
            },
            timeout=60,
        )
        assert (refused.status_code, refused.json()["code"]) == (415, "unimplemented")


def files(
    e2b: E2bServer, sandbox_id: str, token: str | None, content: bytes | None = None
) -> httpx.Response:
    headers = {"E2b-Sandbox-Id": sandbox_id, "Content-Type": "application/octet-stream"}
    if token is not None:
        headers["X-Access-Token"] = token
    return httpx.request(
        "GET" if content is None else "POST",
        f"{e2b.server.url}/e2b/files",
        params={"path": "file"},
        headers=headers,
        content=content,
        timeout=30,
    )


def rpc(
    e2b: E2bServer, sandbox_id: str, token: str | None, path: str, message: object
) -> httpx.Response:
    headers = {"E2b-Sandbox-Id": sandbox_id}
    if token is not None:
        headers["X-Access-Token"] = token
    return httpx.post(f"{e2b.server.url}/e2b/{path}", json=message, headers=headers, timeout=30)


def signed(path: str, operation: str, token: str) -> dict[str, str]:
    digest = hashlib.sha256(f"{path}:{operation}::{token}".encode()).digest()
    signature = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
    return {"path": path, "signature": signature}
