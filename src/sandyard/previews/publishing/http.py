"""Calls that publish a version of a project's files."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Self

from fastapi import Depends, Path
from pydantic import ConfigDict, Field, StrictInt, StrictStr

from sandyard.kit.clock import utc_time
from sandyard.kit.http.routes import GuardedRoutes, caller_of
from sandyard.kit.http.schemas import Documented, eg, example
from sandyard.previews.files import Publication, PublishAttempt, PublishMode
from sandyard.previews.publishing.service import Publishing

Caller = Annotated[Any, Depends(caller_of)]
ProjectId = Annotated[str, Path(description="The id of one of your projects")]
Domain = Annotated[str, Path(max_length=253, description="A host name, such as shop.example.org")]
UrlOf = Callable[[str], str]
"""The address of a published project, by its id."""


class PublishBody(Documented):
    model_config = ConfigDict(
        extra="forbid", **example(version=3, root="dist", fallback="index.html")
    )

    mode: PublishMode = Field(
        "files",
        description="`files` as they are; `build`: what `npm run build` makes of them; `run`: the "
        "application, until it is unpublished. Both in sandboxes of yours, in the background",
    )

    version: Annotated[StrictInt, Field(ge=1, le=2**31 - 1)] | None = Field(
        None, description="By default the current one"
    )
    root: Annotated[StrictStr, Field(max_length=512)] = Field(
        "", description="The folder to show, such as that of a build; by default all files"
    )
    fallback: Annotated[StrictStr, Field(min_length=1, max_length=512)] | None = Field(
        None,
        description="The page below it for paths that no file has, as client-side routes need; "
        "by default `200.html`, if there is one",
    )


class PublishAttemptAnswer(Documented):
    version: int = eg(4)
    mode: PublishMode = eg("build")
    failure: str | None = eg(None, description="null while it is in progress")
    last_lines: Sequence[str] = eg([], description="Of the log of one that failed")


class PublicationAnswer(Documented):
    url: str = eg("http://8080-pub-4k8s0m2q6w1c9x7ab.localhost:8080/", description="For everybody")
    version: int | None = eg(3, description="null until the first attempt has succeeded")
    mode: PublishMode | None = eg("files")
    root: str | None = eg("dist")
    fallback: str | None = eg("index.html")
    sandbox_id: str | None = eg(None, description="What runs it")
    published_at: datetime | None = eg("2026-10-30T09:00:00Z")
    domains: Sequence[str] = eg(["shop.example.org"], description="Hosts that show it too")
    attempt: PublishAttemptAnswer | None = eg(None, description="The next version, until it shows")

    @classmethod
    def of(
        cls,
        url: str,
        found: Publication | None,
        attempt: PublishAttempt | None = None,
        now: datetime | None = None,
    ) -> Self:
        under_way = attempt and PublishAttemptAnswer(
            version=attempt.version,
            mode=attempt.mode,
            failure=None if now is None else attempt.failed(now),
            last_lines=attempt.last_lines,
        )
        shown = {} if found is None else asdict(found)
        empty = dict.fromkeys(("version", "mode", "root", "fallback", "sandbox_id", "published_at"))
        return cls(**{"url": url, "attempt": under_way, "domains": (), **empty, **shown})


def add_publishing(routes: GuardedRoutes, publishing: Publishing, url_of: UrlOf) -> None:
    async def answer(caller: Caller, project_id: str) -> PublicationAnswer:
        found, attempt = await publishing.find(project_id, account_id=caller.account_id)
        now = utc_time(publishing.clock.now())
        return PublicationAnswer.of(url_of(project_id), found, attempt, now)

    @routes.post("/publish", "Publish a project", 409)
    async def publish_project(
        caller: Caller, project_id: ProjectId, body: PublishBody
    ) -> PublicationAnswer:
        """A version's files at an address of their own, for everybody, instead of what was
        published before. They stay so, whatever becomes of the project's files and its preview,
        until they are unpublished. With the mode `build` or `run`, `attempt` tells how it goes on:
        poll this address by GET."""
        about: dict[str, Any] = {
            "version": body.version,
            "root": body.root.strip("/"),
            "fallback": body.fallback,
            "account_id": caller.account_id,
            "actor": caller.actor,
        }
        if body.mode == "files":
            found = await publishing.publish(project_id, **about)
            return PublicationAnswer.of(url_of(project_id), found)
        await publishing.publish_with_sandbox(project_id, mode=body.mode, **about)
        return await answer(caller, project_id)

    @routes.get("/publish", "Get what is published of a project")
    async def get_publication(caller: Caller, project_id: ProjectId) -> PublicationAnswer:
        """404 `NOT_PUBLISHED` if nothing is, nor is to be."""
        return await answer(caller, project_id)

    @routes.delete("/publish", "Unpublish a project", 409, status_code=204)
    async def unpublish_project(caller: Caller, project_id: ProjectId) -> None:
        """Its address is a 404 from then on. Nothing if it was not published."""
        await publishing.unpublish(project_id, account_id=caller.account_id, actor=caller.actor)

    @routes.put("/publish/domains/{domain}", "Publish a project at a domain", 409)
    async def add_publication_domain(
        caller: Caller, project_id: ProjectId, domain: Domain
    ) -> PublicationAnswer:
        """The host must serve the project's token for it: 409 `DOMAIN_UNPROVEN` says which, and
        where. Whoever serves requests to the host then passes them on to this server. It ends with
        what is published."""
        found = await publishing.add_domain(
            project_id, domain, account_id=caller.account_id, actor=caller.actor
        )
        return PublicationAnswer.of(url_of(project_id), found)

    @routes.delete(
        "/publish/domains/{domain}", "Remove a domain of a project", 409, status_code=204
    )
    async def remove_publication_domain(
        caller: Caller, project_id: ProjectId, domain: Domain
    ) -> None:
        """Nothing if it is not published there."""
        await publishing.remove_domain(
            project_id, domain, account_id=caller.account_id, actor=caller.actor
        )
