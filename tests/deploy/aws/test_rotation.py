"""The functions that rotate secrets, against Secrets Manager and RDS as `moto` has them."""

import json
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
import httpx
import pytest
from moto.server import ThreadedMotoServer

from deploy.aws.functions import rotate_database, rotate_tokens

STEPS = ("createSecret", "setSecret", "testSecret", "finishSecret")
URL = "postgresql://sandyard:before@db.example.com:5432/sandyard?ssl=require"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    httpx.post(f"http://{host}:{port}/moto-api/reset")
    yield
    server.stop()


def client(service: str) -> Any:
    session: Any = boto3.Session()
    return session.client(service)


def secret(name: str, value: str) -> Any:
    secrets = client("secretsmanager")
    secrets.create_secret(Name=name, SecretString=value)
    return secrets


def rotate(function: Any, name: str, clients: Any) -> None:
    """As AWS calls the function; it makes the pending version itself, which moto does not."""
    token = str(uuid.uuid4())
    function.STEPS["createSecret"](clients, name, token)
    for step in STEPS:
        event = {"SecretId": name, "ClientRequestToken": token, "Step": step}
        function.handler(event, None, clients)


def current(secrets: Any, name: str) -> str:
    answer = secrets.get_secret_value(SecretId=name, VersionStage="AWSCURRENT")
    return str(answer["SecretString"])


@pytest.mark.usefixtures("aws")
def test_the_token_before_stays_valid_until_the_next_rotation() -> None:
    secrets = secret("tokens", "first")
    rotate(rotate_tokens, "tokens", secrets)
    second, kept = current(secrets, "tokens").split(",")
    assert kept == "first"
    assert re.fullmatch("[A-Za-z0-9]{48}", second)
    rotate(rotate_tokens, "tokens", secrets)
    third, kept = current(secrets, "tokens").split(",")
    assert kept == second
    assert third not in ("first", second)


@pytest.mark.usefixtures("aws")
def test_a_rotation_that_is_repeated_changes_nothing_more() -> None:
    """AWS calls a step again if it did not hear that it ended."""
    secrets = secret("tokens", "first")
    token = str(uuid.uuid4())
    for _ in range(2):
        rotate_tokens.create(secrets, "tokens", token)
    event = {"SecretId": "tokens", "ClientRequestToken": token}
    for step in ("testSecret", "finishSecret", "finishSecret", "createSecret"):
        rotate_tokens.handler(event | {"Step": step}, None, secrets)
    tokens = current(secrets, "tokens").split(",")
    assert len(tokens) == 2
    assert tokens[1] == "first"


@pytest.mark.usefixtures("aws")
def test_a_pending_value_that_would_shut_callers_out_is_refused() -> None:
    secrets = secret("tokens", "first")
    token = str(uuid.uuid4())
    pending = {"ClientRequestToken": token, "VersionStages": ["AWSPENDING"]}
    secrets.put_secret_value(SecretId="tokens", SecretString="another", **pending)
    event = {"SecretId": "tokens", "ClientRequestToken": token, "Step": "testSecret"}
    with pytest.raises(ValueError, match="do not keep"):
        rotate_tokens.handler(event, None, secrets)
    with pytest.raises(ValueError, match="not pending"):
        rotate_tokens.handler(event | {"ClientRequestToken": str(uuid.uuid4())}, None, secrets)


@pytest.mark.usefixtures("aws")
def test_a_rotation_can_be_set_up_without_rotating() -> None:
    """AWS then only tests a version that is as the current one."""
    secrets = secret("tokens", "first")
    token = str(uuid.uuid4())
    pending = {"ClientRequestToken": token, "VersionStages": ["AWSPENDING"]}
    secrets.put_secret_value(SecretId="tokens", SecretString="first", **pending)
    event = {"SecretId": "tokens", "ClientRequestToken": token, "Step": "testSecret"}
    rotate_tokens.handler(event, None, secrets)
    assert current(secrets, "tokens") == "first"


@pytest.mark.usefixtures("aws")
def test_the_password_of_the_database_changes_in_all_its_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secrets = secret("url", URL)
    secrets.create_secret(Name="owner", SecretString="{}")
    clients = {"secretsmanager": secrets, "rds": client("rds")}
    _make_database(clients["rds"])
    for name, value in {"DATABASE": "db", "OWNER": "owner"}.items():
        monkeypatch.setenv(name, value)
    rotate(rotate_database, "url", clients)
    url = urlsplit(current(secrets, "url"))
    assert url.password != "before"
    assert url._replace(netloc="") == urlsplit(URL)._replace(netloc="")
    assert (url.hostname, url.username) == ("db.example.com", "sandyard")
    owner = json.loads(current(secrets, "owner"))
    assert owner == {"username": "sandyard", "password": url.password}


def _make_database(rds: Any) -> None:
    rds.create_db_instance(
        DBInstanceIdentifier="db",
        DBInstanceClass="db.t4g.medium",
        Engine="postgres",
        MasterUsername="sandyard",
        MasterUserPassword="before-it",
        AllocatedStorage=20,
    )
