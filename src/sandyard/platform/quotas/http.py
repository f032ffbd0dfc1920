"""Accounts' call for their quotas."""

from fastapi import APIRouter

from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.quotas.schemas import QuotasAnswer
from sandyard.platform.quotas.service import Quotas


def create_quotas_router(quotas: Quotas, guard: AccessGuard, *, prefix: str) -> APIRouter:
    routes = account_routes(guard, prefix=prefix, tag="accounts")

    @routes.get("/me/quota", "Get your quotas and their use")
    async def get_quota(caller: Caller) -> QuotasAnswer:
        """What the account uses now, and its limits. More resources may be added later."""
        return QuotasAnswer.of(await quotas.of_account(caller.account_id))

    return routes.router
