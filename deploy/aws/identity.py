"""A user pool that issues access tokens to clients, with the Broker's scopes."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_cognito as cognito
from constructs import Construct

from deploy.aws.config import Deployment
from deploy.aws.findings import acknowledge
from sandyard.broker.clients.model import ClientScope

RESOURCE_SERVER = "sandyard"
CLIENTS = {
    "Tracks": (ClientScope.ALLOCATE,),
    "Readers": (ClientScope.READ,),
    "Operators": (ClientScope.OPERATE, ClientScope.ADMIN),
}
"""Kinds of clients, and the scopes of each."""


class Identity(Construct):
    """Machines only: there is no sign-up, and each client authenticates with its own secret."""

    def __init__(self, scope: Construct, deployment: Deployment) -> None:
        super().__init__(scope, "Identity")
        self._deployment = deployment
        self.pool = self._pool()
        scopes = {each: _resource_scope(each) for each in ClientScope}
        server = self.pool.add_resource_server(
            "Scopes", identifier=RESOURCE_SERVER, scopes=list(scopes.values())
        )
        self.clients = [
            self._client(name, server, [scopes[each] for each in wanted])
            for name, wanted in CLIENTS.items()
        ]
        self.domain = self.pool.add_domain(
            "Domain",
            cognito_domain=cognito.CognitoDomainOptions(
                domain_prefix=f"{deployment.name}-{deployment.account}"
            ),
        )

    @property
    def settings(self) -> dict[str, str]:
        """The Broker's settings for accepting these access tokens."""
        region = self._deployment.region
        issuer = f"https://cognito-idp.{region}.amazonaws.com/{self.pool.user_pool_id}"
        return {
            "AUTH_ISSUER": issuer,
            "AUTH_JWKS_URL": f"{issuer}/.well-known/jwks.json",
            "AUTH_AUDIENCE": ",".join(client.user_pool_client_id for client in self.clients),
            "AUTH_SCOPE_PREFIX": f"{RESOURCE_SERVER}/",
        }

    def _pool(self) -> cognito.UserPool:
        pool = cognito.UserPool(
            self,
            "Pool",
            user_pool_name=self._deployment.name,
            self_sign_up_enabled=False,
            mfa=cognito.Mfa.REQUIRED,
            mfa_second_factor=cognito.MfaSecondFactor(sms=False, otp=True),
            account_recovery=cognito.AccountRecovery.NONE,
            password_policy=cognito.PasswordPolicy(
                min_length=16,
                require_lowercase=True,
                require_uppercase=True,
                require_digits=True,
                require_symbols=True,
            ),
            deletion_protection=True,
            removal_policy=RemovalPolicy.RETAIN,
        )
        acknowledge(pool, "COG3", "It has no users whose logins could be watched.")
        acknowledge(pool, "COG8", "It has no users for whom the plan with that would pay.")
        return pool

    def _client(
        self,
        name: str,
        server: cognito.UserPoolResourceServer,
        scopes: list[cognito.ResourceServerScope],
    ) -> cognito.UserPoolClient:
        return self.pool.add_client(
            name,
            user_pool_client_name=f"{self._deployment.name}-{name.lower()}",
            generate_secret=True,
            access_token_validity=Duration.hours(1),
            o_auth=cognito.OAuthSettings(
                flows=cognito.OAuthFlows(client_credentials=True),
                scopes=[cognito.OAuthScope.resource_server(server, each) for each in scopes],
            ),
        )


def _resource_scope(scope: ClientScope) -> cognito.ResourceServerScope:
    return cognito.ResourceServerScope(
        scope_name=scope.value, scope_description=f"Calls of the Broker that need {scope.value}"
    )
