"""Which provider a pool belongs to, and when that may change. No I/O."""

from dataclasses import dataclass, replace
from typing import ClassVar
from urllib.parse import urlsplit

from sandyard.broker.provider.errors import ProviderChangeRefusedError, ProviderMismatchError
from sandyard.kit.changes.transitions import Cause, Transition, changed, created

SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class ProviderBinding:
    """The provider that the pool belongs to."""

    SUBJECT: ClassVar[str] = "pool"
    OWNER: ClassVar[str | None] = None

    provider: str
    pool: str = "pool"
    sequence: int = 0


def provider_name(base_url: str | None) -> str:
    """The name by which a pool identifies its provider: its address, without credentials."""
    if base_url is None:
        return SIMULATED
    url = urlsplit(base_url)
    address = url.netloc.rpartition("@")[2].lower()
    return f"{url.scheme.lower()}://{address}{url.path.rstrip('/')}"


def require_same_provider(bound: ProviderBinding, configured: str) -> None:
    if bound.provider != configured:
        raise ProviderMismatchError(bound.provider, configured)


def decide_first_provider(configured: str, *, cause: Cause) -> Transition[ProviderBinding]:
    """Bind a new pool to this provider."""
    return created(ProviderBinding(configured), "pool.provider_set", cause)


def decide_provider_change(
    bound: ProviderBinding | None, configured: str, *, has_rows: bool, cause: Cause
) -> Transition[ProviderBinding] | None:
    """An operator binds the pool to this provider; None if it already is.

    A real provider may have a new address. Simulated sandboxes never become a real provider's.
    """
    if bound is None:
        if has_rows and configured == SIMULATED:
            raise ProviderChangeRefusedError
        return decide_first_provider(configured, cause=cause)
    if bound.provider == configured:
        return None
    if has_rows and SIMULATED in (bound.provider, configured):
        raise ProviderChangeRefusedError
    return changed(bound, replace(bound, provider=configured), "pool.provider_changed", cause)
