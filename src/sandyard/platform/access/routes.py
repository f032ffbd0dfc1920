"""Endpoints for accounts: a login or an API key is required, and the handler gets the account."""

from typing import Annotated

from fastapi import Depends

from sandyard.kit.http.routes import Check, GuardedRoutes, Idempotency, caller_of
from sandyard.platform.access.guard import ACCOUNT_SECURITY, AccessGuard
from sandyard.platform.access.principal import Principal

Caller = Annotated[Principal, Depends(caller_of)]


def account_routes(guard: AccessGuard, *, prefix: str, tag: str) -> GuardedRoutes:
    return _routes(guard, guard.account, prefix, tag)


def run_routes(guard: AccessGuard, *, prefix: str, tag: str) -> GuardedRoutes:
    """For every account, including API keys with the scope `run`."""
    return _routes(guard, guard.runner, prefix, tag)


def inside_routes(guard: AccessGuard, *, prefix: str, tag: str) -> GuardedRoutes:
    """The same for what is inside a running sandbox."""
    return _routes(guard, guard.inside, prefix, tag)


def admin_routes(guard: AccessGuard, *, prefix: str, tag: str) -> GuardedRoutes:
    return _routes(guard, guard.admin, prefix, tag)


def _routes(guard: AccessGuard, check: Check, prefix: str, tag: str) -> GuardedRoutes:
    return GuardedRoutes(
        prefix=prefix,
        tag=tag,
        check=check,
        security=ACCOUNT_SECURITY,
        statuses=(401, 403, 429, 503),
        idempotency=Idempotency(guard.idempotency, lambda caller: str(caller.account_id)),
    )
