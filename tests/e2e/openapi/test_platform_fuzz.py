"""A fuzz along the Platform's part of the document finds nothing that it leaves out."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from schemathesis.core.failures import Failure
from schemathesis.openapi.checks import RejectedPositiveData

from tests.support.documents.schema_fuzz import FuzzRun, fuzz_config, run_fuzz
from tests.support.servers.processes import ServerProcess, sandyard_serve
from tests.support.servers.users import create_admin

pytestmark = pytest.mark.timeout(600)  # one run for all tests here, of some thousand calls

MAX_EXAMPLES = {"sampled": 1, "whole": 5}
TORTURE = pytest.mark.torture
PASSWORD = "correct horse battery"
OPEN = {
    *("/auth/signup", "/auth/verify", "/auth/resend", "/auth/login"),
    *("/auth/password/forgot", "/auth/password/reset", "/auth/oidc/begin", "/auth/oidc/finish"),
}
ENDS_THE_FUZZ = [
    *("/api/v1/auth/logout", "/api/v1/auth/password/change"),
    "/api/v1/admin/users/{account_id}/role",
]
"""What would take the fuzz's own credential away."""
ENVIRONMENT = {
    "PARTS": "platform",
    "AUTH_RATE_LIMIT_PER_ACCOUNT": "100000/minute",
    "AUTH_RATE_LIMIT_PER_ADDRESS": "100000/minute",
    "WRITES_PER_ACCOUNT": "100000/minute",
}
NAMED_IN_BODIES = {"/api/v1/admin/billing/charges", "/api/v1/images", "/api/v1/volumes"}
"""Calls whose body names what may not exist; in the others, the path does."""
NOT_FOLLOWED = {"query.follow": "false"}
"""The answer to one that follows ends with the program; it has tests of its own."""
INSIDE = ("/commands", "/files", "/ports")
"""Calls into sandboxes, which take one that runs; they have tests of their own."""
REFUSED_BY_RULES = (
    *(b'"INVALID_CURSOR"', b'"INVALID_VERIFICATION_TOKEN"', b'"INVALID_RESET_TOKEN"'),
    *(
        b'"TEMPLATE_NOT_USABLE"',
        b'"PROJECT_NOT_USABLE"',
        b'"RESOURCES_TOO_SMALL"',
        b'"VOLUME_NOT_USABLE"',
    ),
    *(b'"INVALID_SPAN"', b"builtin:", b'"EXPIRY_PASSED"'),
    *(b'"INVALID_PATH"', b'"INVALID_ARCHIVE"', b'"UNKNOWN_EVENT_KIND"'),
    b"a bound variable is a secret",
)
"""What fits the document and is wrong all the same."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("platform")
    with sandyard_serve(folder / "data", environment=ENVIRONMENT) as server:
        yield server


@pytest.fixture(scope="module")
def login(server: ServerProcess) -> str:
    create_admin(server, "--email", "root@example.com", "--username", "root", password=PASSWORD)
    body = {"login": "root", "password": PASSWORD}
    answer = httpx.post(f"{server.url}/api/v1/auth/login", json=body, timeout=20)
    return str(answer.json()["access_token"])


@pytest.fixture(scope="module")
def ids(server: ServerProcess, login: str) -> dict[str, list[str]]:
    """Things that are there, for the fuzz to find."""
    found: dict[str, list[str]] = defaultdict(list)
    template = {"category": "web", "language": "go", "repository_url": "https://example.com/a"}
    headers = {"Authorization": f"Bearer {login}"}
    with httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=20) as client:
        for number in range(8):
            name = {"name": f"n{number}"}
            for path, body, key in (
                ("/projects", name, "project_id"),
                ("/templates", template | name, "template_id"),
                ("/api-keys", name, "key_id"),
            ):
                found[key].append(client.post(path, json=body).json()[key])
        for each in client.get("/notifications").json()["notifications"]:
            found["notification_id"].append(each["notification_id"])
        found["account_id"].append(client.get("/me").json()["account_id"])
        found["sandbox_id"] += sandboxes(client)
    return found


def sandboxes(client: httpx.Client) -> list[str]:
    """Few, so that few are started; each has run, so that there is something to show."""
    official = {"visibility": "official", "q": "static"}
    [template] = client.get("/templates", params=official).json()["templates"]
    found: list[str] = []
    for number in range(2):
        body = {"name": f"s{number}", "template_id": template["template_id"]}
        found.append(client.post("/sandboxes", json=body).json()["sandbox_id"])
        for action in ("start", "stop"):
            answer = client.post(f"/sandboxes/{found[-1]}/{action}")
            assert answer.status_code == 200, answer.text
    return found


@pytest.fixture(scope="module", params=["sampled", pytest.param("whole", marks=TORTURE)])
def fuzz(
    request: pytest.FixtureRequest, server: ServerProcess, login: str, ids: dict[str, list[str]]
) -> FuzzRun:
    """Some calls of each kind, or every bound of every field."""
    coverage = request.param == "whole"
    config = fuzz_config(
        server.url,
        max_examples=MAX_EXAMPLES[request.param],
        auth={"Login": {"bearer": login}},
        phases={"stateful": {"enabled": False}, "coverage": {"enabled": coverage}},
        dictionaries={name: {"values": values} for name, values in ids.items()},
        parameters=NOT_FOLLOWED
        | {f"path.{name}": {"dictionary": name, "probability": 0.7} for name in ids},
    )
    document = schemathesis.openapi.from_url(f"{server.url}/openapi.json", config=config)
    schema = document.exclude(path=ENDS_THE_FUZZ)
    schema.hook(filter_failure)
    return run_fuzz(schema)


def filter_failure(
    _context: schemathesis.HookContext,
    failure: Failure,
    case: schemathesis.Case[Any],
    response: schemathesis.Response,
) -> bool:
    """Whether a failed check is a breach; False where a rule says more than a schema can."""
    if failure.title == "Allow header mismatch":
        # Where a word stands in the place of an id, the id's methods are taken too.
        return not case.operation.label.endswith("/notifications/read-all")
    if isinstance(failure, RejectedPositiveData):
        return not any(code in response.content for code in REFUSED_BY_RULES)
    return True


def test_every_call_answers_as_the_document_says(fuzz: FuzzRun) -> None:
    answers = fuzz.answers
    found = {call: told for call, told in fuzz.breaches.items() if told}
    assert not found, "\n\n".join(f"{call}\n{told[0]}" for call, told in found.items())
    assert len([call for call in answers if "/api/v1/" in call]) >= 52
    assert max(answer.status_code for met in answers.values() for answer in met) < 500


def test_the_fuzz_came_past_the_guard(fuzz: FuzzRun) -> None:
    unmet = [
        call
        for call, met in fuzz.answers.items()
        if call.startswith("GET")
        and not any(answer.status_code == 200 for answer in met)
        and not any(noun in call for noun in INSIDE)
    ]
    assert unmet == []


def test_every_call_is_described(server: ServerProcess) -> None:
    document = httpx.get(f"{server.url}/openapi.json", timeout=60).json()
    calls = {
        (method, path): operation
        for path, operations in document["paths"].items()
        if path.startswith("/api/v1")
        for method, operation in operations.items()
    }
    assert len(calls) >= 55
    for (method, path), operation in calls.items():
        statuses = {int(status) for status in operation["responses"]}
        assert statuses >= {400, 413, 500, 503}, (method, path)
        assert operation["summary"]
        assert ("security" in operation) == (path.removeprefix("/api/v1") not in OPEN)
        is_named = "{" in path or (method == "post" and path in NAMED_IN_BODIES)
        assert (404 in statuses) == is_named, (method, path)
