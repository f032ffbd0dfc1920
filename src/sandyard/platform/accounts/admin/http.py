"""Calls of admins about accounts."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from sandyard.kit.http.schemas import Paging
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Role
from sandyard.platform.access.routes import Caller, admin_routes
from sandyard.platform.accounts import schemas
from sandyard.platform.accounts.admin.service import Administration
from sandyard.platform.accounts.model import AccountFilter, AccountSort
from sandyard.platform.accounts.signups.service import Signups
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import Search

_AccountId = Annotated[str, Path(description="The id, from the listing")]


def create_users_router(administration: Administration, guard: AccessGuard) -> APIRouter:
    routes = admin_routes(guard, "/admin/users", tag="admins")

    @routes.get("", "List users")
    async def list_users(
        paging: Paging,
        q: Search = None,
        role: Annotated[Role | None, Query(description="Only this role")] = None,
        is_active: Annotated[
            bool | None, Query(description="Only active, or only inactive accounts")
        ] = None,
        sort: Annotated[
            AccountSort, Query(description="`-` before a name: descending")
        ] = AccountSort.NEWEST,
    ) -> schemas.UserPage:
        """`q` searches e-mail address, user name, full name and account id."""
        listing = Listing(AccountFilter(q, role, is_active), sort, **paging)
        page = await administration.list_accounts(listing)
        return schemas.UserPage.of(page, schemas.AccountAnswer.of)

    @routes.get("/{account_id}", "Get a user", 404)
    async def get_user(account_id: _AccountId) -> schemas.AccountAnswer:
        """The account as its user sees it."""
        return schemas.AccountAnswer.of(await administration.get_account(account_id))

    @routes.post("/{account_id}/activate", "Activate a user", 404)
    async def activate_user(account_id: _AccountId, admin: Caller) -> schemas.AccountAnswer:
        """API keys of the account work again; the user has to log in again."""
        return schemas.AccountAnswer.of(await administration.activate(account_id, by=admin))

    @routes.post("/{account_id}/deactivate", "Deactivate a user", 404, 409)
    async def deactivate_user(account_id: _AccountId, admin: Caller) -> schemas.AccountAnswer:
        """Logins and API keys of the account are refused from the next request on. You can't
        deactivate yourself."""
        return schemas.AccountAnswer.of(await administration.deactivate(account_id, by=admin))

    @routes.put("/{account_id}/role", "Set a user's role", 404, 409)
    async def set_user_role(
        account_id: _AccountId, body: schemas.RoleBody, admin: Caller
    ) -> schemas.AccountAnswer:
        """Takes effect at once and ends the account's logins. The last admin can't be changed."""
        return schemas.AccountAnswer.of(
            await administration.give_role(account_id, body.role, by=admin)
        )

    return routes.router


def create_invitations_router(signups: Signups, guard: AccessGuard) -> APIRouter:
    routes = admin_routes(guard, "/admin/invitations", tag="admins")

    @routes.make("", "Invite a user", status_code=202, finds_made=False)
    async def invite_user(body: schemas.EmailBody, admin: Caller) -> schemas.AcceptedAnswer:
        """Sends an invitation to this address, valid for a week. It is needed with
        SIGNUP=invite."""
        await signups.invite(body.email, by=admin)
        return schemas.AcceptedAnswer()

    return routes.router
