"""Rotates a secret that lists tokens: the new one comes first, the one before it stays valid.

Servers take every token of the list, so callers may change over at any time until the next one.
"""

from typing import Any

import boto3

KEPT = 2


def handler(event: dict[str, str], _context: object, client: Any = None) -> None:
    client = client or boto3.client("secretsmanager")
    secret, token = event["SecretId"], event["ClientRequestToken"]
    stages = client.describe_secret(SecretId=secret)["VersionIdsToStages"].get(token, [])
    if "AWSCURRENT" in stages:
        return
    if "AWSPENDING" not in stages:
        raise ValueError("the version to rotate to is not pending")
    STEPS[event["Step"]](client, secret, token)


def create(client: Any, secret: str, token: str) -> None:
    if _value(client, secret, VersionId=token, VersionStage="AWSPENDING"):
        return
    current = _value(client, secret, VersionStage="AWSCURRENT")
    made = client.get_random_password(PasswordLength=48, ExcludePunctuation=True)
    tokens = [made["RandomPassword"], *filter(None, current.split(","))][:KEPT]
    client.put_secret_value(
        SecretId=secret,
        ClientRequestToken=token,
        SecretString=",".join(tokens),
        VersionStages=["AWSPENDING"],
    )


def test(client: Any, secret: str, token: str) -> None:
    """AWS asks this also when a rotation is set up: then nothing is pending, or what is current."""
    pending = _value(client, secret, VersionId=token, VersionStage="AWSPENDING").split(",")
    current = _value(client, secret, VersionStage="AWSCURRENT").split(",")
    if pending != [""] and current[0] not in pending:
        raise ValueError("the pending tokens do not keep the current one")


def finish(client: Any, secret: str, token: str) -> None:
    versions = client.describe_secret(SecretId=secret)["VersionIdsToStages"]
    current = next(version for version, stages in versions.items() if "AWSCURRENT" in stages)
    client.update_secret_version_stage(
        SecretId=secret,
        VersionStage="AWSCURRENT",
        MoveToVersionId=token,
        RemoveFromVersionId=current,
    )


def _value(client: Any, secret: str, **version: str) -> str:
    try:
        text: str = client.get_secret_value(SecretId=secret, **version)["SecretString"]
    except client.exceptions.ResourceNotFoundException:
        return ""
    return text


def _nothing(_client: Any, _secret: str, _token: str) -> None:
    """Servers read the secret themselves: there is nothing to set."""


STEPS = {
    "createSecret": create,
    "setSecret": _nothing,
    "testSecret": test,
    "finishSecret": finish,
}
