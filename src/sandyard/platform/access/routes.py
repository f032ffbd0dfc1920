"""Endpoints for accounts: a login or an API key is required, and the handler gets the account."""

from typing import Annotated

from fastapi import Depends

from sandyard.kit.http.routes import Check, GuardedRoutes, Idempotency, caller_of
from sandyard.platform.access.guard import ACCOUNT_SECURITY, AccessGuard
from sandyard.platform.access.principal import Principal
from sandyard.platform.http import PREFIX

Caller = Annotated[Principal, Depends(caller_of)]


def account_routes(guard: AccessGuard, path: str, *, tag: str) -> GuardedRoutes:
    return _routes(guard, guard.account, path, tag)


def run_routes(guard: AccessGuard, path: str, *, tag: str) -> GuardedRoutes:
    """For every account, including API keys with the scope `run`."""
    return _routes(guard, guard.runner, path, tag)


def inside_routes(guard: AccessGuard, path: str, *, tag: str) -> GuardedRoutes:
    """The same for what is inside a running sandbox."""
    return _routes(guard, guard.inside, path, tag)


def admin_routes(guard: AccessGuard, path: str, *, tag: str) -> GuardedRoutes:
    return _routes(guard, guard.admin, path, tag)


def _routes(guard: AccessGuard, check: Check, path: str, tag: str) -> GuardedRoutes:
    return GuardedRoutes(
        prefix=PREFIX + path,
        tag=tag,
        check=check,
        security=ACCOUNT_SECURITY,
        statuses=(401, 403, 429, 503),
        idempotency=Idempotency(guard.idempotency, lambda caller: str(caller.account_id)),
    )
