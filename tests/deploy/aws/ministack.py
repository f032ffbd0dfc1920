"""A real deployment by CloudFormation into ministack, of the types that it knows."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import httpx
from botocore.config import Config

from sandyard.kit.free_ports import free_port
from tests.deploy.aws.templates import ENVIRONMENT, ROOT

PYTHON = ROOT / ".tools" / "ministack" / "bin" / "python"
REGION = "us-east-1"
UNKNOWN = frozenset(
    {
        "AWS::ApplicationAutoScaling::ScalableTarget",
        "AWS::ApplicationAutoScaling::ScalingPolicy",
        "AWS::CloudWatch::CompositeAlarm",
        "AWS::CodeDeploy::Application",
        "AWS::CodeDeploy::DeploymentGroup",
        "AWS::ApiGatewayV2::VpcLink",
        "AWS::EC2::EIP",
        "AWS::EC2::FlowLog",
        "AWS::EC2::NatGateway",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::IAM::OIDCProvider",
        "AWS::SecretsManager::ResourcePolicy",
        "AWS::SecretsManager::RotationSchedule",
        "AWS::WAFv2::IPSet",
        "AWS::WAFv2::LoggingConfiguration",
        "AWS::WAFv2::WebACLAssociation",
    }
)
"""Types that ministack refuses; a test tells when that changes."""
_WAIT_SEC = 120


@dataclass(frozen=True)
class Ministack:
    url: str

    def client(self, service: str) -> Any:
        client: Any = boto3.Session(
            aws_access_key_id=ENVIRONMENT["AWS_ACCOUNT_ID"],
            aws_secret_access_key="none",
            region_name=REGION,
        )
        config = Config(retries={"total_max_attempts": 1}, read_timeout=100)
        return client.client(service, endpoint_url=self.url, config=config)

    @property
    def environment(self) -> Mapping[str, str]:
        """For programs of ours."""
        return {
            "AWS_ACCESS_KEY_ID": ENVIRONMENT["AWS_ACCOUNT_ID"],
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "DDB_ENDPOINT_URL": self.url,
        }

    def deploy(self, name: str, template: dict[str, Any]) -> dict[str, str]:
        """Make the stack; what became of each resource, by its logical id."""
        formation = self.client("cloudformation")
        formation.create_stack(
            StackName=name,
            TemplateURL=self._uploaded(name, template),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        self._wait(formation, name)
        listed = formation.describe_stack_resources(StackName=name)["StackResources"]
        return {each["LogicalResourceId"]: each["ResourceStatus"] for each in listed}

    def _uploaded(self, name: str, template: dict[str, Any]) -> str:
        """As the CDK does it: a template of this size is read from a bucket."""
        storage = self.client("s3")
        storage.create_bucket(Bucket="templates")
        storage.put_object(Bucket="templates", Key=name, Body=json.dumps(template).encode())
        return f"{self.url}/templates/{name}"

    def _wait(self, formation: Any, name: str) -> None:
        end = time.monotonic() + _WAIT_SEC
        while time.monotonic() < end:
            [stack] = formation.describe_stacks(StackName=name)["Stacks"]
            if not stack["StackStatus"].endswith("IN_PROGRESS"):
                break
            time.sleep(0.2)
        assert stack["StackStatus"] == "CREATE_COMPLETE", stack.get("StackStatusReason")


@contextmanager
def running_ministack(folder: Path) -> Iterator[Ministack]:
    port = free_port()
    environment = os.environ | {
        "BIND_HOST": "127.0.0.1",
        "GATEWAY_PORT": str(port),
        "MINISTACK_ACCOUNT_ID": ENVIRONMENT["AWS_ACCOUNT_ID"],
        "MINISTACK_REGION": REGION,
        "S3_DATA_DIR": str(folder / "s3"),
        "TMPDIR": str(folder),
    }
    with (folder / "ministack.log").open("w") as log:
        process = subprocess.Popen(
            [PYTHON, "-m", "ministack"], env=environment, cwd=folder, stdout=log, stderr=log
        )
        try:
            yield _ready(Ministack(f"http://127.0.0.1:{port}"), process)
        finally:
            process.terminate()
            process.wait(30)


def _ready(stack: Ministack, process: "subprocess.Popen[bytes]") -> Ministack:
    end = time.monotonic() + _WAIT_SEC
    while time.monotonic() < end:
        assert process.poll() is None, "ministack ended at its start"
        try:
            if httpx.get(f"{stack.url}/_ministack/health", timeout=5).is_success:
                return stack
        except httpx.TransportError:
            time.sleep(0.2)
    raise TimeoutError("ministack does not answer")


def is_known(resource: dict[str, Any]) -> bool:
    """Of alarms, those without metric math."""
    return resource["Type"] not in UNKNOWN and not (
        resource["Type"] == "AWS::CloudWatch::Alarm" and "Metrics" in resource["Properties"]
    )


def reduced(template: dict[str, Any]) -> dict[str, Any]:
    """Without the types that are unknown there; what refers to them gets a name in their place."""
    dropped = {name for name, each in template["Resources"].items() if not is_known(each)}
    kept = {name: each for name, each in template["Resources"].items() if name not in dropped}
    body = _replaced({**template, "Resources": kept, "Outputs": {}}, dropped)
    for resource in body["Resources"].values():
        resource.pop("Metadata", None)
        resource["DependsOn"] = [n for n in _list(resource.get("DependsOn")) if n not in dropped]
    result: dict[str, Any] = body
    return result


def _replaced(value: Any, dropped: set[str]) -> Any:
    if isinstance(value, dict):
        target = value.get("Ref") or (value.get("Fn::GetAtt") or [None])[0]
        if target in dropped:
            return re.sub(r"\W", "", f"absent{target}")
        return {key: _replaced(each, dropped) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, dropped) for each in value]
    return value


def _list(value: Any) -> list[str]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
