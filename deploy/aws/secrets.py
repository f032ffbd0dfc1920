"""Secrets in Secrets Manager: generated here or set by an operator, and rotated where that is
safe."""

import string
from collections.abc import Sequence
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, SecretValue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.logs import log_group
from sandyard.bootstrap.registry import get_spec

FUNCTIONS = Path(__file__).with_name("functions")
REFERENCE = "aws-secretsmanager:"
"""The prefix of a setting whose value is stored as a secret."""
_NOT_ROTATED = {
    "API_KEY_PEPPER": "Keys of devices need the pepper that they were made with.",
    "SECRETS_KEY": "What is stored is encrypted with it; an operator puts a new key before it.",
    "CSP_API_TOKEN": "The cloud provider gives it; an operator sets it.",
    "E2B_API_KEY": "E2B gives it; an operator sets it.",
    "SMTP_URL": "The mail provider gives it; an operator sets it.",
}


class Secrets(Construct):
    """One secret for each setting, so that a task may read only those that it needs."""

    def __init__(self, scope: Construct, deployment: Deployment, key: kms.IKey) -> None:
        super().__init__(scope, "Secrets")
        self._deployment = deployment
        self._key = key
        self._tokens: functions.Function | None = None
        self.rotations: list[functions.Function] = []
        """Functions whose failures need an alarm."""
        self._made: dict[str, secretsmanager.Secret] = {}

    def settings(self, variables: Sequence[str], reader: iam.IGrantable) -> dict[str, str]:
        """These settings as references, which `reader` may resolve."""
        for variable in variables:
            self.secret(variable).grant_read(reader)
        return {each: f"{REFERENCE}{self._name(each)}" for each in variables}

    def secret(self, variable: str) -> secretsmanager.Secret:
        if variable not in self._made:
            self._made[variable] = self._make(variable)
        return self._made[variable]

    def _name(self, variable: str) -> str:
        return f"{self._deployment.name}/{variable.lower().replace('_', '-')}"

    def _make(self, variable: str) -> secretsmanager.Secret:
        value = (
            {"secret_string_value": _PLACEHOLDERS[variable]}
            if variable in _PLACEHOLDERS
            else {"generate_secret_string": _RANDOM}
        )
        secret = secretsmanager.Secret(
            self,
            variable,
            secret_name=self._name(variable),
            description=f"The setting {variable} of {self._deployment.name}",
            encryption_key=self._key,
            removal_policy=RemovalPolicy.RETAIN,
            **value,
        )
        if variable in _NOT_ROTATED:
            acknowledge(secret, "SMG4", _NOT_ROTATED[variable])
        else:
            self._rotate(secret)
        return secret

    def _rotate(self, secret: secretsmanager.Secret) -> None:
        if self._tokens is None:
            self._tokens = rotation_function(self, "tokens", self._deployment, self._key)
            self.rotations.append(self._tokens)
        add_rotation(secret, self._tokens, self._deployment)


def add_rotation(
    secret: secretsmanager.Secret, function: functions.Function, deployment: Deployment
) -> None:
    """Not immediately: a newly generated secret need not be rotated."""
    secret.add_rotation_schedule(
        "Rotation",
        rotation_lambda=function,
        automatically_after=Duration.days(deployment.token_rotation_days),
        rotate_immediately_on_update=False,
    )


def rotation_function(
    scope: Construct,
    what: str,
    deployment: Deployment,
    key: kms.IKey,
    *,
    environment: dict[str, str] | None = None,
) -> functions.Function:
    """A function whose code is inlined in the template: it needs only the AWS client."""
    name = f"{deployment.name}-rotate-{what}"
    group = log_group(scope, f"Rotate-{what}-Log", deployment, key, f"/aws/lambda/{name}")
    role = _function_role(scope, what, group)
    function = functions.Function(
        scope,
        f"Rotate-{what}",
        function_name=name,
        runtime=functions.Runtime.PYTHON_3_13,
        handler="index.handler",
        code=functions.Code.from_inline((FUNCTIONS / f"rotate_{what}.py").read_text()),
        environment=environment,
        timeout=Duration.minutes(5),
        log_group=group,
        role=role,
    )
    acknowledge(role, "IAM5[Resource::*]", "GetRandomPassword is about no resource.")
    acknowledge(
        function, "L1", "Of the newest runtimes this one has the AWS client we were tried with."
    )
    return function


def _function_role(scope: Construct, what: str, group: logs.LogGroup) -> iam.Role:
    role = iam.Role(
        scope,
        f"Rotate-{what}-Role",
        assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        description=f"Rotation of {what}",
    )
    group.grant_write(role)
    return role


def secret_variables(part: str) -> tuple[str, ...]:
    """The settings that a part requires to start on a shared engine."""
    return tuple(secret.upper() for secret in get_spec(part).secrets)


_RANDOM = secretsmanager.SecretStringGenerator(
    password_length=48, exclude_characters=string.punctuation
)
"""A comma would split one token in two."""
_PLACEHOLDERS = {"SMTP_URL": SecretValue.unsafe_plain_text("smtp://to-be-set.invalid")}
"""For settings that a random text would make invalid."""
