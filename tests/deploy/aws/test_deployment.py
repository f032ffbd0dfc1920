"""The templates, deployed by CloudFormation and read back (`make test-aws`)."""

import re
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest
from botocore.exceptions import ClientError

from sandyard.broker.clients.model import ClientScope
from tests.deploy.aws.ministack import UNKNOWN, Ministack, is_known, reduced, running_ministack
from tests.deploy.aws.templates import NAMES, REGISTRY, Synthesised, deployment
from tests.support.servers.processes import sandyard_serve

pytestmark = [pytest.mark.aws, pytest.mark.timeout(300)]
LEAST_MADE = {"small": 80, "production": 125, "platform": 115}
"""Resources that really were made of each configuration."""


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def stack(
    name: str, synthesised: Synthesised, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ministack]:
    """With this configuration deployed."""
    with running_ministack(tmp_path_factory.mktemp(name)) as ministack:
        made = ministack.deploy("registry", reduced(synthesised.json(REGISTRY)))
        template = synthesised.json(name)
        made = ministack.deploy(deployment(name).name, reduced(template))
        known = {each for each, one in template["Resources"].items() if is_known(one)}
        assert set(made) == known
        assert set(made.values()) == {"CREATE_COMPLETE"}
        assert len(made) >= LEAST_MADE[name]
        yield ministack


def test_tables_are_fit_for_the_servers(stack: Ministack, name: str) -> None:
    """By the command that an operator has for it. (ministack forgets recovery and TTL.)"""
    done = subprocess.run(
        [sys.executable, "-m", "sandyard", "tables", "check"],
        env={**stack.environment, "POOL_STORE": "dynamodb", "TELEMETRY_STORE": "dynamodb"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "SandboxPool: fit for use" in done.stdout
    dynamo = stack.client("dynamodb")
    for table in dynamo.list_tables()["TableNames"]:
        found = dynamo.describe_table(TableName=table)["Table"]
        assert found["DeletionProtectionEnabled"]
        mode = found.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
        assert (mode == "PROVISIONED") == (deployment(name).billing == "provisioned")


def test_the_service_is_there_with_its_tasks(stack: Ministack, name: str) -> None:
    own = deployment(name)
    cluster, service = own.cluster_name, own.service_name
    [found] = stack.client("ecs").describe_services(cluster=cluster, services=[service])["services"]
    assert found["desiredCount"] == 2
    balancing = stack.client("elbv2")
    [balancer] = balancing.describe_load_balancers(Names=[own.name])["LoadBalancers"]
    arn = balancer["LoadBalancerArn"]
    listeners = balancing.describe_listeners(LoadBalancerArn=arn)["Listeners"]
    assert {each["Port"] for each in listeners} == {80, 443}


def test_logs_and_secrets_are_there(stack: Ministack, name: str) -> None:
    own = deployment(name)
    groups = stack.client("logs").describe_log_groups()["logGroups"]
    assert {each["retentionInDays"] for each in groups} == {own.log_retention_days}
    tokens = stack.client("secretsmanager")
    value = tokens.get_secret_value(SecretId=f"{own.name}/broker-api-token")["SecretString"]
    assert len(value) == 48


def test_the_audit_bucket_keeps_every_version(stack: Ministack, name: str) -> None:
    own = deployment(name)
    bucket = f"{own.name}-audit-{own.account}"
    assert stack.client("s3").get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"


def test_clients_have_the_scopes(stack: Ministack, name: str) -> None:
    cognito = stack.client("cognito-idp")
    pools = cognito.list_user_pools(MaxResults=10)["UserPools"]
    if not deployment(name).identity:
        assert pools == []
        return
    [pool] = pools
    [server] = cognito.list_resource_servers(UserPoolId=pool["Id"], MaxResults=10)[
        "ResourceServers"
    ]
    assert {each["ScopeName"] for each in server["Scopes"]} == set(ClientScope)


def test_jobs_are_scheduled(stack: Ministack, name: str) -> None:
    schedules = stack.client("scheduler").list_schedules()["Schedules"]
    jobs = {each["Name"].removeprefix(f"{deployment(name).name}-") for each in schedules}
    scheduled = {"sync", "cleanup", "expiry", "telemetry-events"}
    assert jobs == (scheduled if name == "production" else set())


def test_a_server_runs_on_what_was_deployed(
    stack: Ministack, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With the settings of its task: tables, secrets and sinks. Only the provider is simulated."""
    own = deployment(name)
    settings = _settings(stack, own.service_name)
    folder = tmp_path_factory.mktemp("server")
    settings |= stack.environment
    settings |= {"CSP_BASE_URL": "", "DATA_DIR": str(folder), "TMPDIR": str(folder)}
    del settings["METRICS_PORT"]
    with sandyard_serve(folder / "data", environment=settings) as server:
        operator = _bearer(stack, f"{own.name}/broker-admin-token")
        httpx.post(f"{server.url}/v1/admin/sync", headers=operator, timeout=60).raise_for_status()
        track = _bearer(stack, f"{own.name}/broker-api-token")
        leased = [_lease(server.url, track, number) for number in range(3)]
        assert len(set(leased)) == 3
        if "sqs" in own.sinks:
            queue = settings["EVENT_SQS_QUEUE_URL"]
            assert _hears_of_leases(stack, queue)


def _lease(url: str, token: dict[str, str], number: int) -> str:
    headers = token | {"X-Track-ID": f"deployed-{number}"}
    answer = httpx.post(f"{url}/v1/allocate", headers=headers, timeout=60)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["sandbox_id"])


def _hears_of_leases(stack: Ministack, queue: str) -> bool:
    """An event is sent a minute later: until then an earlier one could still be written."""
    client = stack.client("sqs")
    end = time.monotonic() + 180
    while time.monotonic() < end:
        answer = client.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=2)
        for each in answer.get("Messages", ()):
            client.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])
            if "deployed-" in each["Body"]:
                return True
    return False


def _bearer(stack: Ministack, secret: str) -> dict[str, str]:
    answer = stack.client("secretsmanager").get_secret_value(SecretId=secret)
    return {"Authorization": f"Bearer {answer['SecretString']}"}


def _settings(stack: Ministack, service: str) -> dict[str, str]:
    answer = stack.client("ecs").describe_task_definition(taskDefinition=f"{service}-server")
    containers = answer["taskDefinition"]["containerDefinitions"]
    [server] = [each for each in containers if each["name"] == "sandyard"]
    return {each["name"]: each["value"] for each in server["environment"]}


def test_the_types_left_out_are_those_ministack_does_not_know(stack: Ministack) -> None:
    """A type that ministack has learnt is to be deployed too from then on."""
    template = {"Resources": {re.sub("::", "", kind): {"Type": kind} for kind in UNKNOWN}}
    with pytest.raises(ClientError) as refused:
        stack.deploy("unknown", template)
    assert set(re.findall(r"AWS::\w+::\w+", str(refused.value))) == UNKNOWN
