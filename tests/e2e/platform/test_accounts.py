"""The Platform as people meet it: `sandyard serve`, calls, and the mails in the outbox."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandyard.platform.templates.model import BUILTIN
from tests.support.servers.processes import ServerProcess, run_command, sandyard_serve
from tests.support.servers.users import PASSWORD, Person, create_admin, mailed_token, until
from tests.support.storage.engines import create_database

SECOND_PASSWORD = "staple of a horse"
ALONE = {
    "PARTS": "platform",
    "AUTH_RATE_LIMIT_PER_ACCOUNT": "10000/minute",
    "AUTH_RATE_LIMIT_PER_ADDRESS": "10000/minute",
    "LOG_LEVEL": "DEBUG",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("platform")
    with sandyard_serve(folder / "data", environment=ALONE) as server:
        yield server


def test_the_whole_path_and_no_secret_is_left_anywhere(tmp_path: Path) -> None:
    with sandyard_serve(tmp_path / "data", environment=ALONE) as server:
        ann, root = Person(server.url), Person(server.url)
        # Sign up, read the mail, verify, log in.
        signup = {"email": "Ann@Example.com", "username": "ann", "password": PASSWORD}
        ann.call("POST", "/auth/signup", signup, expect=202)
        first_token = mailed_token(server, number=1)
        ann.call("POST", "/auth/resend", {"email": "ann@example.com"}, expect=202)
        token = mailed_token(server, number=2)
        ann.call("POST", "/auth/verify", {"token": first_token}, expect=400)
        account = ann.call("POST", "/auth/verify", {"token": token}, expect=201)
        ann.log_in("ann@example.com", PASSWORD)
        assert ann.call("GET", "/me")["account_id"] == account["account_id"]
        # A key, and all that follows by it.
        made = ann.call("POST", "/api-keys", {"name": "laptop"}, expect=201)
        by_key = Person(server.url, {"X-API-Key": made["api_key"]}, ann.answers)
        project = by_key.call("POST", "/projects", {"name": "first"}, expect=201)
        by_key.call("POST", f"/projects/{project['project_id']}/archive")
        template = {"name": "mine", "category": "web", "language": "go"}
        template["repository_url"] = "https://example.com/mine.git"
        by_key.call("POST", "/templates", template, expect=201)
        assert len(by_key.call("GET", "/templates")["templates"]) == 1 + len(BUILTIN)
        [notice] = by_key.call("GET", "/notifications?unread=true")["notifications"]
        assert notice["related_entity_id"] == made["key_id"]
        by_key.call("POST", f"/notifications/{notice['notification_id']}/read")
        # Forgotten and changed passwords.
        ann.call("POST", "/auth/password/forgot", {"email": "ann@example.com"}, expect=202)
        reset = mailed_token(server, number=3)
        body = {"token": reset, "password": SECOND_PASSWORD}
        ann.call("POST", "/auth/password/reset", body)
        ann.call("GET", "/me", expect=401)
        ann.log_in("ann", SECOND_PASSWORD)
        change = {"current_password": SECOND_PASSWORD, "new_password": PASSWORD}
        ann.call("POST", "/auth/password/change", change)
        ann.log_in("ann", PASSWORD)
        # An admin takes the account away and gives it back, with another role.
        done = create_admin(server, "--email", "root@example.com", "--username", "root")
        assert done.returncode == 0, done.stderr
        root.log_in("root", PASSWORD)
        user = f"/admin/users/{account['account_id']}"
        root.call("POST", f"{user}/deactivate")
        for out in (ann, by_key):
            out.call("GET", "/me", expect=401)
        root.call("POST", f"{user}/activate")
        by_key.call("GET", "/admin/users", expect=403)
        root.call("PUT", f"{user}/role", {"role": "admin"})
        by_key.call("GET", "/admin/users")
        ann.log_in("ann", PASSWORD)
        ann.call("GET", "/admin/users")
        root.call("POST", "/admin/notifications", {"title": "t", "message": "m"}, expect=201)
        secrets = {
            "password": PASSWORD,
            "second password": SECOND_PASSWORD,
            "key": made["api_key"],
            "verification token": token,
            "first verification token": first_token,
            "reset token": reset,
            "login": ann.headers["Authorization"].removeprefix("Bearer "),
        }
        _find_none(secrets, server, ann.answers + root.answers)
    _find_none(secrets, server, [])


def _find_none(
    secrets: dict[str, str], server: ServerProcess, answers: list[tuple[str, str]]
) -> None:
    """No secret is in a file of the data dir but the outbox, in the log, or in an answer but the
    one that shows it."""
    files = [file for file in server.data_dir.glob("*") if file.is_file()]
    assert [file for file in files if file.name == "platform.db"]
    places = {file.name: file.read_bytes() for file in [*files, server.log]}
    for name, value in secrets.items():
        for place, content in places.items():
            assert value.encode() not in content, (name, place)
        shown = [call for call, answer in answers if value in answer]
        allowed = {"key": "POST /api-keys", "login": "POST /auth/login"}
        assert set(shown) <= {allowed.get(name)}, (name, shown)


def test_the_log_names_the_account_and_the_key(server: ServerProcess) -> None:
    create_admin(server, "--email", "log@example.com", "--username", "log")
    person = Person(server.url)
    person.log_in("log", PASSWORD)
    account_id = person.call("GET", "/me")["account_id"]
    until(lambda: f'"account_id":"{account_id}"' in server.log.read_text())


def test_the_first_admin_is_made_once_while_the_server_runs(server: ServerProcess) -> None:
    arguments = ["--email", "Root@Example.com", "--username", "root"]
    first = create_admin(server, *arguments)
    assert first.returncode == 0, first.stderr
    said = rf"root <root@example.com> is an admin in {server.data_dir}: account \d{{12}}"
    assert re.search(said, first.stdout)
    for file in server.data_dir.glob("*.db*"):
        assert file.stat().st_mode & 0o077 == 0, "only its owner may read it"
    again = create_admin(server, *arguments)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "is taken" in again.stderr
    for wrong in (
        ["--email", "no address", "--username", "root2"],
        ["--email", "a@b.cd", "--username", "r"],
    ):
        assert create_admin(server, *wrong).returncode == 2
    short = create_admin(server, "--email", "a@b.cd", "--username", "abc", password="short")
    assert short.returncode == 2
    assert "10 to 128" in short.stderr
    root = Person(server.url)
    root.log_in("root", PASSWORD)
    assert root.call("GET", "/me")["role"] == "admin"


def test_a_server_without_a_signing_key_makes_one_and_keeps_logins(tmp_path: Path) -> None:
    environment = ALONE | {"JWT_SECRET": ""}
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        assert create_admin(server, "--email", "a@b.cd", "--username", "ann").returncode == 0
        ann = Person(server.url)
        ann.log_in("ann", PASSWORD)
        secret = server.data_dir / "secrets" / "jwt_secret"
        assert secret.stat().st_mode & 0o777 == 0o600
    with sandyard_serve(tmp_path / "data", environment=environment) as server:
        again = Person(server.url, ann.headers)
        assert again.call("GET", "/me")["username"] == "ann"


def test_two_replicas_on_postgresql_share_logins_and_what_is_taken_away(
    tmp_path: Path, postgres_url: str
) -> None:
    url = asyncio.run(create_database(postgres_url))
    environment = ALONE | {"DATABASE_URL": url, "DATABASE_POOL_SIZE": "4"}
    run_command("db", "upgrade", environment={"DATABASE_URL": url}).check_returncode()
    with (
        sandyard_serve(tmp_path / "one", environment=environment) as one,
        sandyard_serve(tmp_path / "two", environment=environment) as two,
    ):
        ann = Person(one.url)
        signup = {"email": "ann@example.com", "username": "ann", "password": PASSWORD}
        ann.call("POST", "/auth/signup", signup, expect=202)
        elsewhere = Person(two.url)
        token = mailed_token(one, number=1)
        elsewhere.call("POST", "/auth/verify", {"token": token}, expect=201)
        elsewhere.log_in("ann", PASSWORD)
        ann.headers = elsewhere.headers
        ann.call("GET", "/me")
        assert len(ann.call("GET", "/templates")["templates"]) == len(BUILTIN)
        elsewhere.call("POST", "/auth/logout")
        ann.call("GET", "/me", expect=401)
