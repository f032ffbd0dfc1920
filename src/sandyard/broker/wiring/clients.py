"""Clients of the Broker, wired: their tokens, an issuer's access tokens, and their limits."""

from sandyard.broker.clients.access import AccessTokens, ClientAccess, RateLimit
from sandyard.broker.clients.ports import ClientStore
from sandyard.broker.metrics import BrokerMetrics
from sandyard.broker.pool.ports import PoolStore
from sandyard.kit.clock import Clock
from sandyard.settings import Settings, SettingsError


def client_access(
    settings: Settings, pool: PoolStore, store: ClientStore, clock: Clock, metrics: BrokerMetrics
) -> ClientAccess:
    """Raises SettingsError if the issuer's settings are incomplete."""

    def rate_limit(rate: str) -> RateLimit:
        from sandyard.kit.rate_limit import RateLimit as CountedRateLimit

        return CountedRateLimit(rate, settings.broker.rate_limit_storage_url, name="client")

    return ClientAccess(
        store,
        pool,
        clock=clock,
        metrics=metrics,
        turnover_per_hour=settings.broker.client_turnover_per_hour,
        rate_limit=rate_limit,
        access_tokens=_access_tokens(settings, clock),
    )


def _access_tokens(settings: Settings, clock: Clock) -> AccessTokens | None:
    oauth = settings.oauth
    audience = [each.strip() for each in (oauth.auth_audience or "").split(",") if each.strip()]
    if oauth.auth_jwks_url is None:
        return None
    if oauth.auth_issuer is None or not audience:
        missing = "AUTH_ISSUER" if oauth.auth_issuer is None else "AUTH_AUDIENCE"
        raise SettingsError(f"{missing}: must be set with AUTH_JWKS_URL")
    from sandyard.broker.clients.oauth import Issuer, OAuthTokens

    issuer = Issuer(
        jwks_url=oauth.auth_jwks_url,
        issuer=oauth.auth_issuer,
        audience=audience,
        scope_prefix=oauth.auth_scope_prefix,
        leeway_sec=oauth.auth_leeway_sec,
    )
    return OAuthTokens(issuer, clock=clock)
