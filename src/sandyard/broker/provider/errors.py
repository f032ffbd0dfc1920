"""What can go wrong with the provider."""

from sandyard.kit.errors import ConflictError, UnavailableError


class ProviderUnavailableError(UnavailableError):
    """The cloud provider fails or does not respond. The pool keeps serving; try again later."""


class CircuitOpenError(ProviderUnavailableError):
    """The provider failed too often and is not called for a while. It is retried automatically."""

    code = "PROVIDER_CIRCUIT_OPEN"


class CreationNotSupportedError(ConflictError):
    """The provider's API can't create sandboxes. Create them there; `sync` adds them."""


class ProviderMismatchError(ConflictError):
    """The pool belongs to another provider. Set CSP_BASE_URL as before, or use another pool."""

    def __init__(self, remembered: str, configured: str) -> None:
        super().__init__(
            f"The pool belongs to {_provider(remembered)}, and CSP_BASE_URL selects "
            f"{_provider(configured)}. Set CSP_BASE_URL as before, or choose another --data-dir or "
            "database. If only the address has changed, run `sandyard pool set-provider`.",
            details={"remembered": remembered, "configured": configured},
        )


class ProviderChangeRefusedError(ConflictError):
    """The pool is not empty, and sandboxes of a simulated provider never belong to a real one. Use
    another --data-dir or database, or delete the sandboxes first."""


def _provider(name: str) -> str:
    return "the simulated provider" if name == "simulated" else f"the provider at {name}"
