"""Accounts' call for their quotas."""

from collections.abc import Sequence
from typing import Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sandyard.kit.http.schemas import Documented, eg
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.quotas.model import ResourceQuota
from sandyard.platform.quotas.service import Quotas


class ResourceQuotaAnswer(BaseModel):
    resource: str = Field(
        description="Running `sandboxes` and `previews`, `cpu` and `memory_gb` of those sandboxes,"
        " `storage_gb` of workspaces and stored files, `snapshot_bytes` of these, `projects_total`,"
        " `templates_total`, `variables_total`"
        " and `sandboxes_total`, running or not, `file_bytes` of projects, …"
    )
    in_use: int | float
    limit: int | float | None = Field(description="Null if there is no limit")


class QuotasAnswer(Documented):
    quotas: list[ResourceQuotaAnswer] = eg(
        [
            {"resource": "sandboxes", "in_use": 1, "limit": 5},
            {"resource": "cpu", "in_use": 2, "limit": 8},
            {"resource": "memory_gb", "in_use": 0.5, "limit": 16},
            {"resource": "storage_gb", "in_use": 2.001, "limit": 20},
            {"resource": "snapshot_bytes", "in_use": 1048576, "limit": None},
            {"resource": "projects_total", "in_use": 3, "limit": 1000},
            {"resource": "previews", "in_use": 0, "limit": 5},
        ]
    )

    @classmethod
    def of(cls, quotas: Sequence[ResourceQuota]) -> Self:
        return cls.model_validate({"quotas": quotas}, from_attributes=True)


def create_quotas_router(quotas: Quotas, guard: AccessGuard) -> APIRouter:
    routes = account_routes(guard, "", tag="accounts")

    @routes.get("/me/quota", "Get your quotas and their use")
    async def get_quota(caller: Caller) -> QuotasAnswer:
        """What the account uses now, and its limits. More resources may be added later."""
        return QuotasAnswer.of(await quotas.of_account(caller.account_id))

    return routes.router
