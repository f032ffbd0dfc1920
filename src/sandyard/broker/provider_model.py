"""Which provider a pool belongs to, and when that may change. No I/O."""

from urllib.parse import urlsplit

from sandyard.broker.errors import ProviderChangeRefusedError, ProviderMismatchError

SIMULATED = "simulated"


def provider_name(base_url: str | None) -> str:
    """What a pool remembers of its provider: its address, without credentials."""
    if base_url is None:
        return SIMULATED
    url = urlsplit(base_url)
    address = url.netloc.rpartition("@")[2].lower()
    return f"{url.scheme.lower()}://{address}{url.path.rstrip('/')}"


def require_same_provider(remembered: str, configured: str) -> None:
    if remembered != configured:
        raise ProviderMismatchError(remembered, configured)


def require_first_provider(configured: str, *, has_rows: bool, has_simulated: bool) -> None:
    """Raise unless a pool that remembers no provider may take this one for its own.

    An empty pool may. One that was filled before pools remembered belongs to the built-in
    simulated provider if it has sandboxes of that one, and else to a real one.
    """
    if has_rows and has_simulated != (configured == SIMULATED):
        raise ProviderMismatchError(SIMULATED if has_simulated else None, configured)


def require_change(remembered: str | None, configured: str, *, has_rows: bool) -> None:
    """Raise unless an operator may give the pool this provider.

    A real one may have a new address. Simulated sandboxes are never a real provider's.
    """
    if has_rows and remembered != configured and SIMULATED in (remembered, configured):
        raise ProviderChangeRefusedError
