"""Promises of the templates about the network, the service and how it is replaced."""

import json
from typing import Any

import pytest

from sandyard.settings import BrokerSettings, load_settings
from tests.deploy.aws.templates import NAMES, Synthesised, deployment

WORLD, NOWHERE = "0.0.0.0/0", "255.255.255.255/32"


def container(synthesised: Synthesised, name: str, task: str) -> dict[str, Any]:
    family = f"{deployment(name).service_name}-{task}"
    definition = synthesised.one(name, "AWS::ECS::TaskDefinition", Family=family)
    containers = definition["ContainerDefinitions"]
    found: dict[str, Any] = next(each for each in containers if each["Name"] == "sandyard")
    return found


def settings_of(synthesised: Synthesised, name: str, task: str) -> dict[str, Any]:
    environment = container(synthesised, name, task)["Environment"]
    return {each["Name"]: each["Value"] for each in environment}


@pytest.mark.parametrize("name", NAMES)
def test_the_network_spans_zones(synthesised: Synthesised, name: str) -> None:
    zones = deployment(name).zones
    subnets = synthesised.of_type(name, "AWS::EC2::Subnet").values()
    assert len(zones) >= 2
    assert {each["AvailabilityZone"] for each in subnets} == set(zones)
    assert not any(each["MapPublicIpOnLaunch"] for each in subnets)
    synthesised.template(name).resource_count_is(
        "AWS::EC2::NatGateway", deployment(name).nat_gateways
    )


@pytest.mark.parametrize("name", NAMES)
def test_at_least_two_tasks_run_without_public_addresses(
    synthesised: Synthesised, name: str
) -> None:
    for service in synthesised.of_type(name, "AWS::ECS::Service").values():
        assert service["DesiredCount"] >= 2
        assert service["LaunchType"] == "FARGATE"
        assert service["DeploymentConfiguration"]["MinimumHealthyPercent"] == 100
        place = service["NetworkConfiguration"]["AwsvpcConfiguration"]
        assert place["AssignPublicIp"] == "DISABLED"
        assert len(place["Subnets"]) == len(deployment(name).zones)


@pytest.mark.parametrize("name", NAMES)
def test_the_number_of_tasks_follows_the_load(synthesised: Synthesised, name: str) -> None:
    own = deployment(name)
    synthesised.template(name).has_resource_properties(
        "AWS::ApplicationAutoScaling::ScalableTarget",
        {"ServiceNamespace": "ecs", "MinCapacity": 2, "MaxCapacity": own.most_tasks},
    )
    synthesised.template(name).has_resource_properties(
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        {
            "PolicyType": "TargetTrackingScaling",
            "TargetTrackingScalingPolicyConfiguration": {
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "ECSServiceAverageCPUUtilization"
                },
                "TargetValue": own.cpu_target_percent,
            },
        },
    )


def test_requests_count_too_where_one_group_has_them_all(synthesised: Synthesised) -> None:
    by_requests = {
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "PredefinedMetricSpecification": {"PredefinedMetricType": "ALBRequestCountPerTarget"},
            "TargetValue": deployment("small").requests_per_task_and_minute,
        },
    }
    kind = "AWS::ApplicationAutoScaling::ScalingPolicy"
    synthesised.template("small").has_resource_properties(kind, by_requests)
    synthesised.template("production").resource_properties_count_is(kind, by_requests, 0)


def test_a_rolling_deployment_is_undone_by_itself(synthesised: Synthesised) -> None:
    synthesised.template("small").has_resource_properties(
        "AWS::ECS::Service",
        {
            "DeploymentController": {"Type": "ECS"},
            "DeploymentConfiguration": {
                "DeploymentCircuitBreaker": {"Enable": True, "Rollback": True},
                "Alarms": {"Enable": True, "Rollback": True},
            },
        },
    )
    synthesised.template("small").resource_count_is("AWS::CodeDeploy::DeploymentGroup", 0)


@pytest.mark.parametrize("name", ["production", "platform"])
def test_blue_green_is_undone_on_alarms(synthesised: Synthesised, name: str) -> None:
    own = deployment(name)
    group = synthesised.one(name, "AWS::CodeDeploy::DeploymentGroup")
    assert group["DeploymentStyle"]["DeploymentType"] == "BLUE_GREEN"
    assert set(group["AutoRollbackConfiguration"]["Events"]) == {
        "DEPLOYMENT_FAILURE",
        "DEPLOYMENT_STOP_ON_ALARM",
        "DEPLOYMENT_STOP_ON_REQUEST",
    }
    assert group["AlarmConfiguration"]["Enabled"]
    assert len(group["AlarmConfiguration"]["Alarms"]) == 3
    pairs = group["LoadBalancerInfo"]["TargetGroupPairInfoList"]
    assert [len(pair["TargetGroups"]) for pair in pairs] == [2]
    # The names under which `aws ecs deploy` looks for them.
    both = f"{own.cluster_name}-{own.service_name}"
    assert group["DeploymentGroupName"] == f"DgpECS-{both}"
    synthesised.template(name).has_resource_properties(
        "AWS::CodeDeploy::Application", {"ApplicationName": f"AppECS-{both}"}
    )


@pytest.mark.parametrize("name", NAMES)
def test_callers_come_by_https_alone(synthesised: Synthesised, name: str) -> None:
    listeners = {
        each["Port"]: each
        for each in synthesised.of_type(name, "AWS::ElasticLoadBalancingV2::Listener").values()
    }
    assert set(listeners) == {80, 443}
    [redirect] = listeners[80]["DefaultActions"]
    assert redirect["Type"] == "redirect"
    assert redirect["RedirectConfig"]["Protocol"] == "HTTPS"
    assert redirect["RedirectConfig"]["StatusCode"] == "HTTP_301"
    assert listeners[443]["Protocol"] == "HTTPS"
    assert "TLS13" in listeners[443]["SslPolicy"]
    assert listeners[443]["Certificates"] == [{"CertificateArn": deployment(name).certificate_arn}]


@pytest.mark.parametrize("name", NAMES)
def test_security_groups_open_nothing_else(synthesised: Synthesised, name: str) -> None:
    inside = [
        rule
        for group in synthesised.of_type(name, "AWS::EC2::SecurityGroup").values()
        for rule in group.get("SecurityGroupIngress", ())
    ]
    callers = set(deployment(name).allowed_networks) or {WORLD}
    assert {rule.get("CidrIp", rule.get("CidrIpv6")) for rule in inside} == callers
    assert {(rule["FromPort"], rule["ToPort"]) for rule in inside} == {(80, 80), (443, 443)}
    between = synthesised.of_type(name, "AWS::EC2::SecurityGroupIngress").values()
    assert {rule["FromPort"] for rule in between} == ports_inside(name)
    assert all("SourceSecurityGroupId" in rule for rule in between)


def ports_inside(name: str) -> set[int]:
    """The ports between security groups: of tasks, the database, and the load balancer for API
    Gateway."""
    made = deployment(name)
    return {8080} | ({5432} if made.platform else set()) | ({443} if made.api_gateway else set())


@pytest.mark.parametrize("name", NAMES)
def test_tasks_call_nobody_but_by_tls_and_the_load_balancer_only_them(
    synthesised: Synthesised, name: str
) -> None:
    groups = synthesised.of_type(name, "AWS::EC2::SecurityGroup").values()
    outside = [rule for group in groups for rule in group.get("SecurityGroupEgress", ())]
    called = {rule["FromPort"] for rule in outside if rule["CidrIp"] == WORLD}
    assert called == ({443, 587} if deployment(name).platform else {443})
    assert {rule["CidrIp"] for rule in outside} <= {WORLD, NOWHERE}
    between = synthesised.of_type(name, "AWS::EC2::SecurityGroupEgress").values()
    assert {rule["FromPort"] for rule in between} == ports_inside(name)
    assert all("DestinationSecurityGroupId" in rule for rule in between)


@pytest.mark.parametrize("name", NAMES)
def test_the_load_balancer_asks_whether_a_task_is_alive(
    synthesised: Synthesised, name: str
) -> None:
    synthesised.template(name).all_resources_properties(
        "AWS::ElasticLoadBalancingV2::TargetGroup",
        {"HealthCheckPath": "/healthz", "Matcher": {"HttpCode": "200"}, "TargetType": "ip"},
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_firewall_limits_the_rate_of_an_address(synthesised: Synthesised, name: str) -> None:
    acl = synthesised.one(name, "AWS::WAFv2::WebACL")
    rules = {rule["Name"]: rule for rule in acl["Rules"]}
    rate = rules["rate"]["Statement"]["RateBasedStatement"]
    assert rate["Limit"] == deployment(name).requests_per_5_minutes
    assert rules["rate"]["Action"] == {"Block": {}}
    synthesised.template(name).resource_count_is("AWS::WAFv2::WebACLAssociation", 1)
    logging = synthesised.one(name, "AWS::WAFv2::LoggingConfiguration")
    hidden = {each["SingleHeader"]["Name"] for each in logging["RedactedFields"]}
    assert hidden == {"authorization", "x-api-key", "cookie"}


def test_api_gateway_passes_on_the_calls_of_tracks_alone(synthesised: Synthesised) -> None:
    routes = synthesised.of_type("platform", "AWS::ApiGatewayV2::Route").values()
    assert {each["RouteKey"] for each in routes} == {
        "ANY /v1/allocate",
        "ANY /v1/queue",
        "ANY /v1/release",
        "ANY /v1/sandboxes/{path+}",
    }
    integration = synthesised.one("platform", "AWS::ApiGatewayV2::Integration")
    assert integration["ConnectionType"] == "VPC_LINK"
    assert integration["TlsConfig"] == {"ServerNameToVerify": "campus.example.com"}
    stage = synthesised.one("platform", "AWS::ApiGatewayV2::Stage")
    assert stage["DefaultRouteSettings"]["ThrottlingRateLimit"] == 1000
    assert "AccessLogSettings" in stage
    rules = {
        each["Name"]: each for each in synthesised.one("platform", "AWS::WAFv2::WebACL")["Rules"]
    }
    assert "ScopeDownStatement" in rules["rate"]["Statement"]["RateBasedStatement"]
    assert '"QUEUE_MAX_WAIT_SEC", "Value": "25"' in json.dumps(synthesised.json("platform"))
    assert synthesised.of_type("small", "AWS::ApiGatewayV2::Api") == {}


def test_the_firewall_lets_in_whom_the_lists_name(synthesised: Synthesised) -> None:
    sets = synthesised.of_type("production", "AWS::WAFv2::IPSet").values()
    listed = {each["Name"].removeprefix("sandyard-production-"): each["Addresses"] for each in sets}
    assert listed == {
        "allowed-ipv4": ["198.51.100.0/24", "203.0.113.0/24"],
        "allowed-ipv6": ["2001:db8::/32"],
        "operators-ipv4": ["203.0.113.0/24"],
    }
    rules = synthesised.one("production", "AWS::WAFv2::WebACL")["Rules"]
    assert [rule["Name"] for rule in rules][:2] == ["allowed-networks", "operator-networks"]
    assert "/v1/admin" in json.dumps(rules[1])
    assert synthesised.of_type("small", "AWS::WAFv2::IPSet") == {}


@pytest.mark.parametrize("name", NAMES)
def test_a_task_has_no_rights_beyond_its_own(synthesised: Synthesised, name: str) -> None:
    server = container(synthesised, name, "server")
    assert server["ReadonlyRootFilesystem"]
    assert server["User"] == "10001:10001"
    assert server["LinuxParameters"]["Capabilities"] == {"Drop": ["ALL"]}
    assert server["HealthCheck"]["Command"][0] == "CMD"
    assert server["StopTimeout"] >= 15


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", ["server", "jobs", "platform"])
def test_a_server_understands_its_settings(
    synthesised: Synthesised, monkeypatch: pytest.MonkeyPatch, name: str, task: str
) -> None:
    """References and names that exist once it is deployed stand for themselves here."""
    families = {
        each["Family"] for each in synthesised.of_type(name, "AWS::ECS::TaskDefinition").values()
    }
    if f"{deployment(name).service_name}-{task}" not in families:
        assert (name, task) in {
            ("small", "jobs"),
            ("small", "platform"),
            ("production", "platform"),
            ("platform", "jobs"),
        }
        return
    known = {"EVENT_SNS_TOPIC_ARN": "arn:aws:sns:us-east-1:1:events.fifo"}
    known |= {"EVENT_S3_URL": "s3://audit/events"}
    for variable, value in settings_of(synthesised, name, task).items():
        plain = value if isinstance(value, str) else known.get(variable, "https://example.com")
        if plain.startswith("aws-secretsmanager:"):
            plain = {"DATABASE_URL": "postgresql://db", "SMTP_URL": "smtp://m"}.get(
                variable, "0" * 48
            )
        monkeypatch.setenv(variable, plain)
    settings = load_settings()
    assert settings.server.metrics_port == 9090
    if task != "platform":
        assert settings.broker.pool_store == "dynamodb"


def test_secrets_are_references_that_the_task_follows_itself(synthesised: Synthesised) -> None:
    """So that a rotation reaches it without a new task."""
    for task, name in (("server", "production"), ("platform", "platform")):
        settings = settings_of(synthesised, name, task)
        for variable in settings:
            if variable.endswith(("_TOKEN", "_PEPPER", "_SECRET", "_KEY", "_URL")) and isinstance(
                settings[variable], str
            ):
                assert settings[variable].startswith(("aws-secretsmanager:", "https://"))
        assert "Secrets" not in container(synthesised, name, task)


def test_jobs_may_be_tasks_of_their_own(synthesised: Synthesised) -> None:
    schedules = synthesised.of_type("production", "AWS::Scheduler::Schedule").values()
    found = {each["Name"].removeprefix("sandyard-production-"): each for each in schedules}
    rates = {job: each["ScheduleExpression"] for job, each in found.items()}
    assert rates == {
        "sync": "rate(10 minutes)",
        "cleanup": "rate(5 minutes)",
        "expiry": "rate(5 minutes)",
        "telemetry-events": "rate(1440 minutes)",
    }
    for job, each in found.items():
        [override] = json.loads(each["Target"]["Input"])["containerOverrides"]
        assert override == {"name": "sandyard", "command": ["jobs", "run", job]}
        assert each["Target"]["EcsParameters"]["LaunchType"] == "FARGATE"
        assert "DeadLetterConfig" in each["Target"]
    assert synthesised.of_type("small", "AWS::Scheduler::Schedule") == {}


def test_servers_run_a_job_that_its_task_does_not(synthesised: Synthesised) -> None:
    """After three intervals; where jobs are not tasks the settings are left as they are."""
    told = settings_of(synthesised, "production", "server")
    for variable in ("SYNC_INTERVAL_SEC", "CLEANUP_INTERVAL_SEC", "AUTO_EXPIRY_INTERVAL_SEC"):
        default = BrokerSettings.model_fields[variable.lower()].default
        assert float(told[variable]) == 3 * default
        assert variable not in settings_of(synthesised, "small", "server")


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_the_pipeline_are_outputs(synthesised: Synthesised, name: str) -> None:
    outputs = synthesised.json(name)["Outputs"]
    assert {"EcsClusterName", "EcsServiceName", "AlbDnsName", "AwsAccountId"} <= set(outputs)
    assert outputs["AwsAccountId"]["Value"] == deployment(name).account


@pytest.mark.parametrize("name", NAMES)
def test_everything_that_costs_has_the_tags(synthesised: Synthesised, name: str) -> None:
    wanted = {"project", "environment", "cost-center"}
    for kind in ("ECS::Service", "DynamoDB::Table", "S3::Bucket", "KMS::Key", "EC2::VPC"):
        for properties in synthesised.of_type(name, f"AWS::{kind}").values():
            assert wanted <= {tag["Key"] for tag in properties["Tags"]}
