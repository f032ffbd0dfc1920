"""The identity provider that people may log in with, wired."""

from typing import TYPE_CHECKING

from sandyard.kit.clock import Clock
from sandyard.settings import Settings, SettingsError
from sandyard.wiring.addresses import public_url

if TYPE_CHECKING:
    from sandyard.platform.accounts.ports import IdentityProvider

CALLBACK = "/console/login/oidc/callback"


def has_identity_provider(settings: Settings) -> bool:
    """Raises SettingsError if its settings are incomplete."""
    chosen = settings.platform
    needed = {
        "OIDC_ISSUER": chosen.oidc_issuer,
        "OIDC_CLIENT_ID": chosen.oidc_client_id,
        "OIDC_CLIENT_SECRET": chosen.oidc_client_secret,
    }
    missing = [name for name, value in needed.items() if value is None]
    if len(missing) == len(needed):
        return False
    if missing:
        present = next(name for name in needed if name not in missing)
        raise SettingsError(f"{missing[0]}: must be set with {present}")
    return True


def identity_provider(settings: Settings, clock: Clock) -> "IdentityProvider | None":
    """None if none is configured; raises SettingsError if its settings are incomplete."""
    chosen = settings.platform
    if not has_identity_provider(settings):
        return None
    assert chosen.oidc_issuer and chosen.oidc_client_id  # noqa: S101, PT018 - both are set
    from sandyard.platform.accounts.identity.oidc import OidcClient, OidcProvider

    client = OidcClient(
        issuer=chosen.oidc_issuer,
        client_id=chosen.oidc_client_id,
        client_secret=settings.secret("oidc_client_secret"),
        redirect_uri=public_url(settings) + CALLBACK,
    )
    return OidcProvider(client, clock=clock)
