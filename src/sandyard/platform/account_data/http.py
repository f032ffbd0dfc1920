"""Calls of users about all their data: export, and deletion of the account."""

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response, StreamingResponse

from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.account_data.export import AccountExport
from sandyard.platform.accounts.schemas import AccountDeletedAnswer, AccountDeletionBody
from sandyard.platform.accounts.service import Accounts

_FILE = {
    200: {
        "description": "One JSON object, with a list for each kind of thing",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "examples": [{"account": [{"username": "ada"}], "projects": [], "events": []}],
                }
            }
        },
    }
}


def create_account_data_router(
    export: AccountExport,
    accounts: Accounts,
    guard: AccessGuard,
    address_of: Callable[[Request], str],
) -> APIRouter:
    routes = account_routes(guard, "/me", tag="accounts")
    Address = Annotated[str, Depends(address_of)]  # noqa: N806 - a type

    @routes.get("/export", "Export your data", response_class=Response, answers=_FILE)
    async def export_account(caller: Caller) -> StreamingResponse:
        """Profile, projects with their files, templates, keys and variables without their values,
        notifications, sandboxes, usage, bills, measurements and events. Download the files of a
        sandbox from the sandbox itself."""
        headers = {"Content-Disposition": 'attachment; filename="sandyard-account.json"'}
        return StreamingResponse(
            export.write(caller.account_id), media_type="application/json", headers=headers
        )

    @routes.post("/delete", "Delete your account", 403, 409)
    async def delete_account(
        body: AccountDeletionBody, caller: Caller, address: Address
    ) -> AccountDeletedAnswer:
        """Deletes the account for good. Needs the password and a login, not an API key. Logins and
        keys end at once, sandboxes and previews within minutes, all files within an hour. Address
        and name are free again; usage, bills and events stay for their retention."""
        await accounts.delete_account(caller, password=body.password, address=address)
        return AccountDeletedAnswer()

    return routes.router
