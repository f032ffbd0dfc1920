"""Promises of the templates about tables, secrets, sinks, identity and who may do what."""

import json
from typing import Any

import pytest

from deploy.aws.secrets import FUNCTIONS
from sandyard.broker.clients.model import ClientScope
from sandyard.broker.stores import dynamo_table as pool
from sandyard.kit.dynamo.tables import Definition, provisioned, scaling_targets
from sandyard.settings.delivery import SINKS
from sandyard.telemetry.stores import dynamo_tables as telemetry
from tests.deploy.aws.templates import NAMES, REGISTRY, Synthesised, deployment

SPECS = [*pool.table_specs(pool.TableNames()), *telemetry.table_specs()]
_INLINE_LIMIT = 4096
"""Characters of a function's code in a template."""


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_what_the_command_creates(synthesised: Synthesised, name: str) -> None:
    tables = {
        each["TableName"]: each
        for each in synthesised.of_type(name, "AWS::DynamoDB::Table").values()
    }
    is_provisioned = deployment(name).billing == "provisioned"
    assert set(tables) == {spec.name for spec in SPECS}
    for spec in SPECS:
        definition = provisioned(spec.definition) if is_provisioned else spec.definition
        table = tables[spec.name]
        assert {key: table[key] for key in definition} == definition
        ttl = table.get("TimeToLiveSpecification")
        assert ttl == (spec.ttl and {"AttributeName": spec.ttl, "Enabled": True})


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_encrypted_backed_up_and_hard_to_delete(
    synthesised: Synthesised, name: str
) -> None:
    synthesised.template(name).all_resources_properties(
        "AWS::DynamoDB::Table",
        {
            "DeletionProtectionEnabled": True,
            "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
            "SSESpecification": {"SSEEnabled": True, "SSEType": "KMS"},
        },
    )
    synthesised.template(name).all_resources("AWS::DynamoDB::Table", {"DeletionPolicy": "Retain"})


def test_provisioned_capacity_scales_at_seventy_percent(synthesised: Synthesised) -> None:
    kind = "AWS::ApplicationAutoScaling::ScalableTarget"
    made = [
        each
        for each in synthesised.of_type("production", kind).values()
        if each["ServiceNamespace"] == "dynamodb"
    ]
    assert _ids(made) == {
        (target.resource_id, target.dimension)
        for spec in SPECS
        for target in scaling_targets(spec.definition)
    }
    policies = synthesised.of_type("production", "AWS::ApplicationAutoScaling::ScalingPolicy")
    at = [
        each["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]
        for each in policies.values()
        if each["PolicyName"].startswith("table-")
    ]
    assert at == [70] * len(made)
    assert _ids(synthesised.of_type("small", kind).values()) == {(None, "ecs:service:DesiredCount")}


def _ids(targets: Any) -> set[tuple[str | None, str]]:
    """What is scaled; ids that only AWS knows are left out."""
    return {
        (
            each["ResourceId"] if isinstance(each["ResourceId"], str) else None,
            each["ScalableDimension"],
        )
        for each in targets
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_sinks_are_in_the_settings(synthesised: Synthesised, name: str) -> None:
    own = deployment(name)
    family = f"{own.service_name}-server"
    task = synthesised.one(name, "AWS::ECS::TaskDefinition", Family=family)
    settings = {
        each["Name"]: each["Value"] for each in task["ContainerDefinitions"][0]["Environment"]
    }
    assert set(settings["EVENT_SINKS"].split(",")) == {"webhooks", *own.sinks} <= set(SINKS)
    named = {"sns": "EVENT_SNS_TOPIC_ARN", "sqs": "EVENT_SQS_QUEUE_URL", "s3": "EVENT_S3_URL"}
    assert {sink for sink, variable in named.items() if variable in settings} == set(own.sinks)


def test_topic_and_queue_keep_the_order_of_events(synthesised: Synthesised) -> None:
    template = synthesised.template("production")
    template.has_resource_properties(
        "AWS::SNS::Topic", {"TopicName": "sandyard-production-events.fifo", "FifoTopic": True}
    )
    template.has_resource_properties(
        "AWS::SQS::Queue",
        {
            "QueueName": "sandyard-production-events.fifo",
            "FifoQueue": True,
            "RedrivePolicy": {"maxReceiveCount": 5},
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_in_the_audit_bucket_stays(synthesised: Synthesised, name: str) -> None:
    days = deployment(name).audit_retention_days
    synthesised.template(name).has_resource_properties(
        "AWS::S3::Bucket",
        {
            "ObjectLockEnabled": True,
            "ObjectLockConfiguration": {
                "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": days}}
            },
            "VersioningConfiguration": {"Status": "Enabled"},
            "PublicAccessBlockConfiguration": {"BlockPublicAcls": True},
        },
    )


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_rotated_and_what_must_not_change_is_not(
    synthesised: Synthesised, name: str
) -> None:
    resources = synthesised.json(name)["Resources"]
    rotated = {
        resources[each["SecretId"]["Ref"]]["Properties"]["Name"].partition("/")[2]
        for each in synthesised.of_type(name, "AWS::SecretsManager::RotationSchedule").values()
    }
    assert {"broker-api-token", "broker-admin-token", "telemetry-admin-token"} <= rotated
    assert not {"api-key-pepper", "secrets-key", "csp-api-token"} & rotated
    if deployment(name).platform:
        assert {"jwt-secret", "gateway-secret", "database-url"} <= rotated


@pytest.mark.parametrize("name", NAMES)
def test_a_rotation_comes_when_the_configuration_says(synthesised: Synthesised, name: str) -> None:
    synthesised.template(name).all_resources_properties(
        "AWS::SecretsManager::RotationSchedule",
        {
            "RotationRules": {
                "ScheduleExpression": f"rate({deployment(name).token_rotation_days} days)"
            },
            "RotateImmediatelyOnUpdate": False,
        },
    )


def test_code_in_a_template_is_short_enough() -> None:
    for path in FUNCTIONS.glob("*.py"):
        assert len(path.read_text()) <= _INLINE_LIMIT, path.name


@pytest.mark.parametrize("name", ["production", "platform"])
def test_clients_get_access_tokens_with_the_scopes_of_the_broker(
    synthesised: Synthesised, name: str
) -> None:
    server = synthesised.one(name, "AWS::Cognito::UserPoolResourceServer")
    assert server["Identifier"] == "sandyard"
    assert {each["ScopeName"] for each in server["Scopes"]} == set(ClientScope)
    clients = synthesised.of_type(name, "AWS::Cognito::UserPoolClient").values()
    assert len(clients) == 3
    for client in clients:
        assert client["AllowedOAuthFlows"] == ["client_credentials"]
        assert client["GenerateSecret"]
    asked = {
        scope["Fn::Join"][1][-1] if isinstance(scope, dict) else scope
        for client in clients
        for scope in client["AllowedOAuthScopes"]
    }
    assert {each.rpartition("/")[2] for each in asked} == set(ClientScope)


@pytest.mark.parametrize("name", NAMES)
def test_logs_are_encrypted_and_end(synthesised: Synthesised, name: str) -> None:
    groups = synthesised.of_type(name, "AWS::Logs::LogGroup").values()
    assert len(groups) >= 5
    for group in groups:
        assert group["RetentionInDays"] == deployment(name).log_retention_days
        assert "KmsKeyId" in group
    synthesised.template(name).all_resources_properties(
        "AWS::KMS::Key", {"EnableKeyRotation": True}
    )


def test_telemetry_may_be_a_function(synthesised: Synthesised) -> None:
    template = synthesised.template("production")
    template.has_resource_properties(
        "AWS::Lambda::Function",
        {
            "PackageType": "Image",
            "ImageConfig": {"Command": ["sandyard.entrypoints.aws_lambda.handler"]},
            "Environment": {"Variables": {"TELEMETRY_STORE": "dynamodb"}},
        },
    )
    template.has_resource_properties("AWS::ApiGatewayV2::Api", {"ProtocolType": "HTTP"})
    routes = synthesised.of_type("production", "AWS::ApiGatewayV2::Route").values()
    paths = {each["RouteKey"] for each in routes}
    assert paths == {"ANY /telemetry/v1/{path+}", "ANY /healthz", "ANY /readyz"}
    synthesised.template("small").resource_count_is("AWS::ApiGatewayV2::Api", 0)


def test_the_platform_may_be_on_postgresql(synthesised: Synthesised) -> None:
    synthesised.template("platform").has_resource_properties(
        "AWS::RDS::DBInstance",
        {
            "Engine": "postgres",
            "MultiAZ": True,
            "StorageEncrypted": True,
            "DeletionProtection": True,
            "PubliclyAccessible": False,
            "BackupRetentionPeriod": 14,
        },
    )
    for name in ("small", "production"):
        synthesised.template(name).resource_count_is("AWS::RDS::DBInstance", 0)


def test_images_are_scanned_and_never_replaced(synthesised: Synthesised) -> None:
    synthesised.template(REGISTRY).has_resource_properties(
        "AWS::ECR::Repository",
        {
            "RepositoryName": "sandyard",
            "ImageTagMutability": "IMMUTABLE",
            "ImageScanningConfiguration": {"ScanOnPush": True},
            "EncryptionConfiguration": {"EncryptionType": "KMS"},
        },
    )


def allowed(synthesised: Synthesised, name: str, role: str) -> dict[str, str]:
    """Each action that a role may do, with its resources as text."""
    [policy] = [
        each
        for key, each in synthesised.of_type(name, "AWS::IAM::Policy").items()
        if key.startswith(f"Sandyard{role}RoleDefaultPolicy")
    ]
    statements = policy["PolicyDocument"]["Statement"]
    found: dict[str, str] = {}
    for statement in statements:
        actions = statement["Action"]
        for action in actions if isinstance(actions, list) else [actions]:
            found[action] = found.get(action, "") + json.dumps(statement["Resource"])
    return found


def table_names(definitions: list[Definition]) -> set[str]:
    return {each["TableName"] for each in definitions}


def test_a_role_may_do_what_its_task_does_and_no_more(synthesised: Synthesised) -> None:
    server = allowed(synthesised, "production", "Server")
    jobs = allowed(synthesised, "production", "Jobs")
    function = allowed(synthesised, "production", "TelemetryFunction")
    for role in (server, jobs, function):
        assert not {"dynamodb:DeleteTable", "dynamodb:CreateTable", "dynamodb:UpdateTable"} & set(
            role
        )
        assert all('"*"' not in resource for resource in role.values())
    assert "device_readings" not in server["dynamodb:Query"]
    assert "SandboxPool" not in function["dynamodb:Query"]
    assert {"sns:Publish", "sqs:SendMessage", "s3:PutObject"} <= set(server)
    assert not {"sns:Publish", "sqs:SendMessage", "s3:PutObject"} & set(jobs)
    assert not {"s3:GetObject", "s3:DeleteObject", "sqs:ReceiveMessage"} & set(server)


def test_a_role_reads_its_own_secrets_alone(synthesised: Synthesised) -> None:
    read = "secretsmanager:GetSecretValue"
    server = allowed(synthesised, "production", "Server")[read]
    assert "BROKERAPITOKEN" in server
    assert "APIKEYPEPPER" not in server
    jobs = allowed(synthesised, "production", "Jobs")[read]
    assert "CSPAPITOKEN" in jobs
    assert "BROKERAPITOKEN" not in jobs
    platform = allowed(synthesised, "platform", "Platform")
    assert not any(action.startswith("dynamodb:") for action in platform)
    assert "BROKERAPITOKEN" not in platform[read]
