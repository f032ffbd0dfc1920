"""The configuration of one deployment: a TOML file, overridden by the environment."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, get_args

Rollout = Literal["rolling", "blue-green"]
Billing = Literal["on-demand", "provisioned"]
Jobs = Literal["in-service", "scheduled"]
Telemetry = Literal["service", "lambda", "none"]

LEAST_TASKS = 2
LEAST_ZONES = 2
FROM_ENVIRONMENT = {
    "AWS_ACCOUNT_ID": "account",
    "AWS_REGION": "region",
    "ECS_CLUSTER_NAME": "cluster_name",
    "ECS_SERVICE_NAME": "service_name",
    "IMAGE_TAG": "image_tag",
}
"""Settings from the environment, and the field of each."""
_CHOICES = {"rollout": Rollout, "billing": Billing, "jobs": Jobs, "telemetry": Telemetry}
_PATTERNS = {
    "account": (r"\d{12}", "AWS_ACCOUNT_ID: must be 12 digits"),
    "region": (r"[a-z]{2}(-[a-z]+)+-\d", "AWS_REGION: must be a region such as us-east-1"),
    "environment": (r"[a-z][a-z0-9-]{0,20}", "environment: must be a short name such as staging"),
    "certificate_arn": (r"arn:aws[a-z-]*:acm:\S+", "certificate_arn: must be a certificate's ARN"),
    "public_url": (r"https://[^\s/]+", "public_url: must be such as https://labs.example.com"),
    "provider_url": (r"https?://[^\s/]+\S*", "provider_url: must be the URL of the provider's API"),
}
_SINKS = frozenset({"sns", "sqs", "s3"})
_LOG_DAYS = frozenset({1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731})
"""The retention periods that CloudWatch Logs supports."""


class ConfigurationError(Exception):
    """A line for each mistake, beginning with the field's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One deployment. Numbers and names without another source are those of the seeds."""

    account: str
    region: str = "us-east-1"
    environment: str
    zones: tuple[str, ...]
    """Listed explicitly, so that the templates can be synthesised without calling AWS."""
    certificate_arn: str
    public_url: str
    provider_url: str
    provider_dialect: str = "generic"
    cost_center: str
    alarm_email: str | None = None
    runbooks_url: str = ""
    """Where the alarms' links to docs/operations.md begin: a checkout's address, with a slash."""
    image_tag: str = "v0.3.0.dev0"
    github_repository: str | None = None
    """`owner/name`, whose workflows may publish images and deploy them."""
    cluster_name: str = "sandbox-broker"
    service_name: str = "sandbox-broker-api"

    network: str = "10.0.0.0/16"
    nat_gateways: int = 1
    allowed_networks: tuple[str, ...] = ()
    """Networks that may call the service; empty: all."""
    operator_networks: tuple[str, ...] = ()
    """Networks that may make operators' calls; empty: all that may call the service."""
    requests_per_5_minutes: int = 300_000
    """From one address. A class or a lab's provider shares one: 1,000 a second."""
    api_gateway: bool = False
    """An HTTP API of API Gateway for the calls of tracks, besides the load balancer."""

    rollout: Rollout = "rolling"
    task_cpu: int = 1024
    task_memory_mib: int = 2048
    least_tasks: int = LEAST_TASKS
    most_tasks: int = 10
    cpu_target_percent: int = 60
    requests_per_task_and_minute: int = 30_000

    pool_table: str = "SandboxPool"
    telemetry_table_prefix: str = ""
    billing: Billing = "on-demand"
    jobs: Jobs = "in-service"
    telemetry: Telemetry = "service"
    platform: bool = False
    sandbox_domain: str | None = None
    """Platform: the domain of the sandboxes' hosts."""
    database_class: str = "t4g.medium"
    identity: bool = False
    """A user pool that issues access tokens to clients."""
    sinks: tuple[str, ...] = ("sns", "sqs", "s3")

    token_rotation_days: int = 30
    log_retention_days: int = 30
    audit_retention_days: int = 365

    def __post_init__(self) -> None:
        mistakes = [*_wrong_texts(self), *_wrong_numbers(self), *_wrong_lists(self)]
        if self.api_gateway and self.allowed_networks:
            mistakes.append("api_gateway: must not be used with allowed_networks, as it is public")
        if mistakes:
            raise ConfigurationError("\n".join(mistakes))

    @property
    def name(self) -> str:
        """The prefix for the names of its resources."""
        return f"sandyard-{self.environment}"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the service; Platform and Previews have their own, a function needs none."""
        return ("broker", "telemetry") if self.telemetry == "service" else ("broker",)


def load_deployment(path: Path, environment: Mapping[str, str]) -> Deployment:
    """Raises ConfigurationError if a field is unknown, missing or invalid."""
    given: dict[str, Any] = tomllib.loads(path.read_text())
    given |= {
        field: environment[variable]
        for variable, field in FROM_ENVIRONMENT.items()
        if environment.get(variable)
    }
    known = {field.name for field in fields(Deployment)}
    if unknown := sorted(given.keys() - known):
        raise ConfigurationError("\n".join(f"{name}: there is no such field" for name in unknown))
    required = {each.name for each in fields(Deployment) if each.default is MISSING}
    if missing := sorted(required - given.keys()):
        variables = {field: variable for variable, field in FROM_ENVIRONMENT.items()}
        raise ConfigurationError(
            "\n".join(f"{variables.get(name, name)}: must be set" for name in missing)
        )
    return Deployment(**{name: _frozen(value) for name, value in given.items()})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _wrong_texts(deployment: Deployment) -> Iterator[str]:
    for name, (pattern, message) in _PATTERNS.items():
        if not re.fullmatch(pattern, getattr(deployment, name)):
            yield message
    for name, choices in _CHOICES.items():
        if getattr(deployment, name) not in get_args(choices):
            yield f"{name}: must be one of {', '.join(get_args(choices))}"


def _wrong_numbers(deployment: Deployment) -> Iterator[str]:
    if deployment.least_tasks < LEAST_TASKS:
        yield f"least_tasks: must be {LEAST_TASKS} or more, so that one may fail"
    if deployment.most_tasks < deployment.least_tasks:
        yield "most_tasks: must be least_tasks or more"
    if deployment.log_retention_days not in _LOG_DAYS:
        yield f"log_retention_days: must be one of {', '.join(map(str, sorted(_LOG_DAYS)))}"
    for name, value in asdict(deployment).items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            yield f"{name}: must be 1 or more"


def _wrong_lists(deployment: Deployment) -> Iterator[str]:
    zones = deployment.zones
    if len(set(zones)) < LEAST_ZONES or not all(z.startswith(deployment.region) for z in zones):
        yield f"zones: must be {LEAST_ZONES} or more zones of {deployment.region}"
    if not set(deployment.sinks) <= _SINKS:
        yield f"sinks: must be some of {', '.join(sorted(_SINKS))}"
    for name in ("allowed_networks", "operator_networks"):
        for each in getattr(deployment, name):
            try:
                ip_network(each)
            except ValueError:
                yield f"{name}: {each!r} is no network such as 10.0.0.0/8"
