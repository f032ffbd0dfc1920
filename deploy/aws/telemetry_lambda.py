"""Telemetry as a function behind an HTTP API, from the same image as the tasks."""

from collections.abc import Mapping

from aws_cdk import Duration
from aws_cdk import aws_apigatewayv2 as api
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as functions
from aws_cdk.aws_apigatewayv2_integrations import HttpLambdaIntegration
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from deploy.aws.http_api import add_stage
from deploy.aws.logs import log_group
from deploy.aws.tasks import Image

HANDLER = "sandyard.entrypoints.aws_lambda.handler"
_PATHS = ("/telemetry/v1/{path+}", "/healthz", "/readyz")


class TelemetryFunction(Construct):
    """Stateless: it uses the same tables that the service would use."""

    def __init__(
        self, scope: Construct, deployment: Deployment, image: Image, key: kms.IKey
    ) -> None:
        super().__init__(scope, "TelemetryFunction")
        self._deployment = deployment
        self._key = key
        name = f"{deployment.name}-telemetry"
        self.log = log_group(self, "Log", deployment, key, f"/aws/lambda/{name}")
        self.role = self._role()
        self.function = functions.Function(
            self,
            "Function",
            function_name=name,
            description="Takes in the readings of devices",
            code=functions.Code.from_ecr_image(
                image.repository,
                tag_or_digest=image.tag,
                entrypoint=["python", "-m", "awslambdaric"],
                cmd=[HANDLER],
            ),
            handler=functions.Handler.FROM_IMAGE,
            runtime=functions.Runtime.FROM_IMAGE,
            memory_size=1024,
            timeout=Duration.seconds(29),
            role=self.role,
            log_group=self.log,
        )
        self.api = self._api()

    def configure(self, settings: Mapping[str, str]) -> None:
        for variable, value in sorted(settings.items()):
            self.function.add_environment(variable, value)

    def _role(self) -> iam.Role:
        role = iam.Role(
            self,
            "Role",
            description="What Telemetry's function may do",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        self.log.grant_write(role)
        return role

    def _api(self) -> api.HttpApi:
        made = api.HttpApi(
            self,
            "Api",
            api_name=f"{self._deployment.name}-telemetry",
            create_default_stage=False,
        )
        integration = HttpLambdaIntegration("Integration", self.function)
        for path in _PATHS:
            made.add_routes(path=path, methods=[api.HttpMethod.ANY], integration=integration)
        acknowledge(made, "APIG4", "Telemetry checks the keys of devices and operators itself.")
        add_stage(self, self._deployment, self._key, made, "telemetry-api")
        return made
