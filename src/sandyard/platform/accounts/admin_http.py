"""Calls of admins about accounts."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.accounts.admin import Administration
from sandyard.platform.accounts.model import AccountFilter, AccountSort
from sandyard.platform.accounts.schemas import AccountAnswer, RoleBody, UserPage
from sandyard.platform.fields import Cursor, Limit, Search
from sandyard.platform.principal import Principal, Role


def create_users_router(
    administration: Administration, guard: AccessGuard, *, prefix: str
) -> APIRouter:
    Admin = Annotated[Principal, Depends(guard.admin)]  # noqa: N806 - a type
    router = APIRouter(
        prefix=f"{prefix}/admin/users", tags=["admins"], dependencies=[Depends(guard.admin)]
    )

    @router.get(
        "",
        summary="List users",
        response_model=UserPage,
        responses=errors(400, 401, 403, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_users(
        q: Search = None,
        role: Role | None = None,
        is_active: bool | None = None,
        sort: AccountSort = AccountSort.NEWEST,
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """`q` looks into e-mail address, user name, full name and account id."""
        page = await administration.list_accounts(
            AccountFilter(q, role, is_active), sort=sort, limit=limit, cursor=cursor
        )
        shown = [AccountAnswer.of(account) for account in page.items]
        return UserPage(users=shown, next_cursor=page.next_cursor)

    @router.get(
        "/{account_id}",
        summary="Look at a user",
        response_model=AccountAnswer,
        responses=errors(401, 403, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get_user(account_id: str) -> Any:
        """What the user sees of himself."""
        return AccountAnswer.of(await administration.get_account(account_id))

    @router.post(
        "/{account_id}/activate",
        summary="Activate a user",
        response_model=AccountAnswer,
        responses=errors(401, 403, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def activate(account_id: str) -> Any:
        """His API keys work again; he logs in anew."""
        return AccountAnswer.of(await administration.activate(account_id))

    @router.post(
        "/{account_id}/deactivate",
        summary="Deactivate a user",
        response_model=AccountAnswer,
        responses=errors(401, 403, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def deactivate(account_id: str, admin: Admin) -> Any:
        """His logins and API keys are out with their next request. Not yourself."""
        return AccountAnswer.of(await administration.deactivate(account_id, by=admin))

    @router.put(
        "/{account_id}/role",
        summary="Give a user a role",
        response_model=AccountAnswer,
        responses=errors(400, 401, 403, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def give_role(account_id: str, body: Annotated[RoleBody, Body()]) -> Any:
        """In force at once; his logins end. The last admin stays one."""
        return AccountAnswer.of(await administration.give_role(account_id, body.role))

    return router
