"""The whole way of a new user, from sign-up to a bill, against `sandyard serve`.

Read it from the top: it is what the five-minute path of the docs does, and what follows after.
"""

from collections.abc import Iterator
from decimal import Decimal

import pytest

from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.sandbox_programs import page_of
from tests.support.servers.users import PASSWORD, Person, create_admin, mailed_token, until

VCPU_HOUR, MEMORY_GB_HOUR = Decimal(36), Decimal(72)
"""High enough that a second costs cents: 1 vCPU and 0.5 GB cost 72 an hour, 0.02 a second."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("platform")
    environment = {
        "PARTS": "platform",
        "PRICE_VCPU_HOUR": str(VCPU_HOUR),
        "PRICE_MEMORY_GB_HOUR": str(MEMORY_GB_HOUR),
        "METRICS_INTERVAL_SEC": "1",
        "ENDS_INTERVAL_SEC": "1",
    }
    with sandyard_serve(folder / "data", environment=environment) as server:
        yield server


def test_from_sign_up_to_a_bill(server: ServerProcess) -> None:
    ann = Person(server.url)

    # She signs up, reads her mail, verifies and logs in.
    account = {"email": "ann@example.com", "username": "ann", "password": PASSWORD}
    ann.call("POST", "/auth/signup", account, expect=202)
    verification = mailed_token(server, number=1)
    ann.call("POST", "/auth/verify", {"token": verification}, expect=201)
    ann.log_in("ann", PASSWORD)

    # She makes a key, which opens the same endpoints, and uses it from now on.
    key = ann.call("POST", "/api-keys", {"name": "laptop"}, expect=201)["api_key"]
    ann.headers = {"X-API-Key": key}

    # She starts the static template and fetches its page.
    [template] = [
        each
        for each in ann.call("GET", "/templates?visibility=official")["templates"]
        if each["repository_url"] == "builtin:static"
    ]
    wanted = {
        "name": "my page",
        "template_id": template["template_id"],
        "cpu_spec": 1,
        "memory_spec": 0.5,
        "max_running_seconds": 600,
    }
    sandbox = ann.call("POST", "/sandboxes", wanted, expect=201)
    path = f"/sandboxes/{sandbox['sandbox_id']}"
    running = ann.call("POST", f"{path}/start")
    assert running["status"] == "running"
    page = page_of(ann, running["preview_url"])
    assert page.status_code == 200
    assert "<html" in page.text.lower()

    # She watches metrics arrive, and its cost grow.
    metrics = until(lambda: ann.call("GET", f"{path}/metrics?bucket=1s")["metrics"])
    assert metrics[0]["memory_utilization"] > 0
    assert until(lambda: Decimal(ann.call("GET", path)["cost"]) > 0)

    # She stops it, and sees usage and cost to the cent.
    stopped = ann.call("POST", f"{path}/stop")
    assert (stopped["status"], stopped["preview_url"]) == ("stopped", None)
    [usage] = ann.call("GET", "/usage")["usage"]
    assert Decimal(usage["hourly_rate"]) == VCPU_HOUR + MEMORY_GB_HOUR / 2
    assert Decimal(usage["cost"]) == usage["milliseconds"] * Decimal("0.00002")
    assert Decimal(stopped["cost"]) == Decimal(usage["cost"])

    # She starts it again, with a few seconds to live, and finds the files of before.
    ann.call("PATCH", path, {"max_running_seconds": 5})
    again = ann.call("POST", f"{path}/start")
    assert page_of(ann, again["preview_url"]).text == page.text

    # It times out, and she is told.
    assert until(lambda: ann.call("GET", path)["status"] == "timeout")
    notices = ann.call("GET", "/notifications?unread=true")["notifications"]
    assert "my page timed out" in [notice["title"] for notice in notices]

    # The billing job runs twice; there is one bill for each of the two runs.
    made = create_admin(server, "--email", "root@example.com", "--username", "root")
    assert made.returncode == 0, made.stderr
    root = Person(server.url)
    root.log_in("root", PASSWORD)
    first = root.call("POST", "/admin/billing/run")
    again_run = root.call("POST", "/admin/billing/run")
    assert (first["bills"], again_run["bills"]) == (2, 0)
    bills = ann.call("GET", "/billing?service_type=sandbox_runtime")["bills"]
    usages = ann.call("GET", "/usage?service_type=sandbox_runtime")["usage"]
    assert sum(Decimal(bill["amount"]) for bill in bills) == sum(
        Decimal(usage["cost"]) for usage in usages
    )
    assert ann.call("GET", "/usage?is_open=true")["usage"] == []

    # Nothing secret is to be found where it has no business.
    found = _places_of(server, [PASSWORD, key, verification, ann_login(ann)])
    assert found == {}
    shown = [call for call, text in ann.answers if key in text]
    assert shown == ["POST /api-keys"]
    assert [call for call, text in ann.answers if PASSWORD in text or verification in text] == []


def ann_login(ann: Person) -> str:
    """The login that she had before the key."""
    [text] = [text for call, text in ann.answers if call == "POST /auth/login"]
    return text.split('"access_token":"')[1].split('"')[0]


def _places_of(server: ServerProcess, secrets: list[str]) -> dict[str, list[str]]:
    """Which files of the server hold which of the secrets; its outbox may hold the mail's."""
    found: dict[str, list[str]] = {}
    files = [file for file in server.data_dir.rglob("*") if file.is_file()]
    for file in [*files, server.log]:
        if "outbox" in file.parts:
            continue
        content = file.read_bytes()
        held = [secret for secret in secrets if secret.encode() in content]
        if held:
            found[str(file)] = held
    return found
