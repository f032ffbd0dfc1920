"""The identity provider that people may log in with, wired."""

from sandyard.bootstrap.addresses import public_url
from sandyard.kit.clock import Clock
from sandyard.platform.accounts.ports import IdentityProvider
from sandyard.settings import Settings, SettingsError

CALLBACK = "/console/login/oidc/callback"


def identity_provider(settings: Settings, clock: Clock) -> IdentityProvider | None:
    """None if none is set; SettingsError if only a part of what it needs is."""
    chosen = settings.platform
    needed = {
        "OIDC_ISSUER": chosen.oidc_issuer,
        "OIDC_CLIENT_ID": chosen.oidc_client_id,
        "OIDC_CLIENT_SECRET": chosen.oidc_client_secret,
    }
    missing = [name for name, value in needed.items() if value is None]
    if len(missing) == len(needed):
        return None
    if chosen.oidc_issuer is None or chosen.oidc_client_id is None or missing:
        given = next(name for name in needed if name not in missing)
        raise SettingsError(f"{missing[0]}: must be set with {given}")
    from sandyard.platform.accounts.oidc import OidcClient, OidcProvider

    client = OidcClient(
        issuer=chosen.oidc_issuer,
        client_id=chosen.oidc_client_id,
        client_secret=settings.secret("oidc_client_secret"),
        redirect_uri=public_url(settings) + CALLBACK,
    )
    return OidcProvider(client, clock=clock)
