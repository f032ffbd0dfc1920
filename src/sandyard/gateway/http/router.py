"""Calls of accounts for access tokens."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Self

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from sandyard.gateway.credentials import PARAMETER
from sandyard.gateway.model import PageScope
from sandyard.gateway.tokens import IssuedToken, Issuer, TokenIssue
from sandyard.kit.http.routes import GuardedRoutes, caller_of
from sandyard.kit.http.schemas import example, inline

_LONGEST_MINUTES = 24 * 60
_EXAMPLE = {
    "token": "sat-eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl",
    "url": "http://3000-sbx-1m4p7s0v3y6b9e2hk.localhost:8080/?"
    f"{PARAMETER}=sat-eyJhbGciOiJIUzI1NiJ9.e30.c2lnbmF0dXJl",
    "expires_at": "2026-10-30T10:00:00Z",
}

Minutes = Annotated[int, Field(ge=1, le=_LONGEST_MINUTES, description="Lifetime of the token")]
TokenScope = Annotated[PageScope, inline(PageScope)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")

    minutes: Minutes = 60

    @property
    def lasts(self) -> timedelta:
        return timedelta(minutes=self.minutes)


class SandboxTokenBody(_Body):
    model_config = ConfigDict(extra="forbid", **example(port=3000, minutes=60))

    port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        None, description="The port that it is valid for; default: all ports"
    )


class ProjectTokenBody(_Body):
    model_config = ConfigDict(extra="forbid", **example(scopes=["view", "status"], minutes=60))

    scopes: list[TokenScope] = Field(
        default=[PageScope.VIEW],
        min_length=1,
        max_length=len(PageScope),
        description="`view` opens the preview; `status` and `sync` allow these two calls, with the "
        "token sent as `Authorization: Bearer …`",
    )


class AccessTokenAnswer(BaseModel):
    model_config = example(**_EXAMPLE)

    token: str = Field(description="Send it as `X-Access-Token` to the sandbox's host")
    url: str | None = Field(description="A link that opens it in a browser; null without `view`")
    expires_at: datetime

    @classmethod
    def of(cls, issued: IssuedToken) -> Self:
        link = None if issued.url is None else f"{issued.url}?{PARAMETER}={issued.token}"
        return cls(token=issued.token, url=link, expires_at=issued.grant.expires_at)


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
