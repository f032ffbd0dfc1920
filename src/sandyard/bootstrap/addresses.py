"""Addresses of sandboxes and previews, and the tokens for them."""

from urllib.parse import urlsplit

from sandyard.gateway.credentials import share_cookies
from sandyard.gateway.model import SandboxDomain
from sandyard.gateway.tokens import AccessTokens
from sandyard.settings import Settings, SettingsError
from sandyard.wiring.addresses import public_url

_LOCAL_DOMAIN = "localhost"


def sandbox_domain(settings: Settings) -> SandboxDomain:
    return SandboxDomain.parse(
        settings.sandboxes.sandbox_domain or _LOCAL_DOMAIN, public_url=public_url(settings)
    )


def access_tokens(settings: Settings) -> AccessTokens:
    return AccessTokens(settings.secret("gateway_secret"))


def check_domain(settings: Settings) -> None:
    """Raise SettingsError if a sandbox could plant cookies for the API and its pages."""
    api = urlsplit(public_url(settings)).hostname or ""
    domain = sandbox_domain(settings).name
    if share_cookies(api, domain):
        raise SettingsError(
            f"SANDBOX_DOMAIN: {domain} and {api} (PUBLIC_URL) share a registrable domain, so "
            "a sandbox could set cookies for the API; use a separate domain"
        )
