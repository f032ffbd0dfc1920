"""Calls of accounts for access tokens."""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request

from sandyard.gateway.http.schemas import AccessTokenAnswer, ProjectTokenBody, SandboxTokenBody
from sandyard.gateway.model import PageScope
from sandyard.gateway.service import Issuer, TokenIssue
from sandyard.kit.http.routes import GuardedRoutes, caller_of

Caller = Annotated[Issuer, Depends(caller_of)]


def create_tokens_router(
    issue: TokenIssue,
    account: Callable[[Request], Awaitable[Issuer]],
    *,
    security: dict[str, Any],
    prefix: str,
    with_projects: bool,
) -> APIRouter:
    """`account` authenticates the caller; `security` is the security requirement for it."""
    routes = GuardedRoutes(
        prefix=prefix,
        tag="access tokens",
        check=account,
        security=security,
        statuses=(401, 403, 404, 429, 503),
    )

    @routes.post("/sandboxes/{sandbox_id}/tokens", "Create a link to a sandbox", status_code=201)
    async def create_sandbox_token(
        caller: Caller,
        sandbox_id: Annotated[str, Path(description="The id of one of your sandboxes")],
        body: SandboxTokenBody,
    ) -> AccessTokenAnswer:
        """A token for the sandbox's ports, as a link or as `X-Access-Token`, until it expires. It
        is valid for this sandbox only."""
        issued = await issue.issue(
            sandbox_id,
            by=caller,
            scopes=[PageScope.VIEW],
            lasts=body.lasts,
            port=body.port,
        )
        return AccessTokenAnswer.of(issued)

    if with_projects:

        @routes.post(
            "/projects/{project_id}/tokens", "Create a token for a web page", status_code=201
        )
        async def create_project_token(
            caller: Caller,
            project_id: Annotated[str, Path(description="The id of one of your projects")],
            body: ProjectTokenBody,
        ) -> AccessTokenAnswer:
            """For a web page that shows a project's preview, instead of an account's credential. It
            is valid for this project and its scopes only."""
            issued = await issue.issue(
                project_id,
                by=caller,
                scopes=body.scopes,
                lasts=body.lasts,
            )
            return AccessTokenAnswer.of(issued)

    return routes.router
