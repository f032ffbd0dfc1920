"""Rotates the password in the database's URL: RDS sets it, and servers read the URL again.

Connections that are open stay open.
"""

import json
import os
import time
from typing import Any
from urllib.parse import urlsplit

import boto3


def handler(event: dict[str, str], _context: object, clients: Any = None) -> None:
    clients = clients or {name: boto3.client(name) for name in ("secretsmanager", "rds")}
    secret, token = event["SecretId"], event["ClientRequestToken"]
    versions = clients["secretsmanager"].describe_secret(SecretId=secret)["VersionIdsToStages"]
    if "AWSCURRENT" not in versions.get(token, []):
        STEPS[event["Step"]](clients, secret, token)


def create(clients: Any, secret: str, token: str) -> None:
    client = clients["secretsmanager"]
    try:
        client.get_secret_value(SecretId=secret, VersionId=token, VersionStage="AWSPENDING")
    except client.exceptions.ResourceNotFoundException:
        made = client.get_random_password(PasswordLength=32, ExcludePunctuation=True)
        url = client.get_secret_value(SecretId=secret, VersionStage="AWSCURRENT")["SecretString"]
        client.put_secret_value(
            SecretId=secret,
            ClientRequestToken=token,
            SecretString=url.replace(f":{urlsplit(url).password}@", f":{made['RandomPassword']}@"),
            VersionStages=["AWSPENDING"],
        )


def change(clients: Any, secret: str, token: str) -> None:
    clients["rds"].modify_db_instance(
        DBInstanceIdentifier=os.environ["DATABASE"],
        MasterUserPassword=_pending(clients, secret, token).password,
        ApplyImmediately=True,
    )


def wait(clients: Any, _secret: str, _token: str) -> None:
    """Until RDS has set it; if the function's time is over before, AWS calls it again."""
    while True:
        answer = clients["rds"].describe_db_instances(DBInstanceIdentifier=os.environ["DATABASE"])
        database = answer["DBInstances"][0]
        pending = "MasterUserPassword" in database.get("PendingModifiedValues", {})
        if database["DBInstanceStatus"] == "available" and not pending:
            return
        time.sleep(5)


def finish(clients: Any, secret: str, token: str) -> None:
    client, url = clients["secretsmanager"], _pending(clients, secret, token)
    owner = {"username": url.username, "password": url.password}
    client.put_secret_value(SecretId=os.environ["OWNER"], SecretString=json.dumps(owner))
    versions = client.describe_secret(SecretId=secret)["VersionIdsToStages"]
    current = next(version for version, stages in versions.items() if "AWSCURRENT" in stages)
    client.update_secret_version_stage(
        SecretId=secret,
        VersionStage="AWSCURRENT",
        MoveToVersionId=token,
        RemoveFromVersionId=current,
    )


def _pending(clients: Any, secret: str, token: str) -> Any:
    answer = clients["secretsmanager"].get_secret_value(
        SecretId=secret, VersionId=token, VersionStage="AWSPENDING"
    )
    return urlsplit(answer["SecretString"])


STEPS = {
    "createSecret": create,
    "setSecret": change,
    "testSecret": wait,
    "finishSecret": finish,
}
