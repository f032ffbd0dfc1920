"""Calls of accounts about their sandboxes, and of admins about any."""

from collections.abc import AsyncIterator
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.http.routes import GuardedRoutes
from sandyard.kit.http.schemas import Paging, example_of
from sandyard.kit.paging import Page
from sandyard.platform.access.guard import AccessGuard, LoginRequiredError
from sandyard.platform.access.open_streams import stream_end, until_over
from sandyard.platform.access.routes import Caller, admin_routes, run_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import OfProject, OfTemplate, Search
from sandyard.platform.sandboxes import model, schemas
from sandyard.platform.sandboxes.runs.deadlines import Deadlines
from sandyard.platform.sandboxes.runs.programs import SandboxPrograms
from sandyard.platform.sandboxes.service import Sandboxes

SandboxId = Annotated[str, Path(description="The id from the response that created it")]
Sort = Literal["created_at", "-created_at", "name", "-name", "updated_at", "-updated_at"]
Lines = Annotated[int, Query(ge=1, le=1000, description="How many of the last lines")]
Follow = Annotated[bool, Query(description="Stream new lines as text until the run ends")]

_LOGS_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "model": schemas.LogsAnswer,
        "description": "The last lines; as text, one by one, if they are followed",
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": "Serving on port 8000\nGET / 200\n",
            }
        },
    }
}


def create_sandboxes_router(
    sandboxes: Sandboxes, programs: SandboxPrograms, deadlines: Deadlines, guard: AccessGuard
) -> APIRouter:
    routes = run_routes(guard, "/sandboxes", tag="sandboxes")
    _add_crud(routes, sandboxes)
    _add_actions(routes, sandboxes, deadlines)
    _add_program(routes, sandboxes, programs)
    _add_egress(routes, sandboxes)

    @routes.get(
        "/{sandbox_id}/logs",
        "Get a sandbox's log",
        *(404, 409),
        response_class=Response,
        answers=_LOGS_ANSWER,
    )
    async def get_sandbox_logs(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        lines: Lines = 100,
        follow: Follow = False,  # noqa: FBT002
    ) -> Response:
        """The log of its last run. With `follow` the response continues until the run ends."""
        account_id = caller.account_id
        if follow:
            guard.streams.check(account_id)
            written = await programs.follow_logs(sandbox_id, account_id=account_id, lines=lines)

            async def text() -> AsyncIterator[bytes]:
                with suppress(LoginRequiredError), stream_end(request, guard, caller) as is_over:
                    async for line in until_over(written, is_over):
                        if line is not None:
                            yield f"{line}\n".encode()

            return StreamingResponse(text(), media_type="text/plain")
        tail = await programs.tail_logs(sandbox_id, account_id=account_id, lines=lines)
        body = schemas.LogsAnswer(sandbox_id=sandbox_id, lines=list(tail))
        return Response(body.model_dump_json(), media_type="application/json")

    return routes.router


def create_admin_sandboxes_router(sandboxes: Sandboxes, guard: AccessGuard) -> APIRouter:
    routes = admin_routes(guard, "/admin/sandboxes", tag="admins")

    @routes.post("/{sandbox_id}/end", "End any sandbox", 404, 409)
    async def end_sandbox(
        request: Request, sandbox_id: SandboxId, body: schemas.EndBody, admin: Caller
    ) -> schemas.SandboxAnswer:
        """Its owner is notified, with the reason, and requests do not wake it again. On the node
        that runs it, it is stopped and its files are kept. If its node is gone for good, it ends as
        of its last heartbeat, frees its quota, and can be started on another node without the files
        of the old one. While its node is alive, another node returns 503 `SANDBOX_ELSEWHERE`: call
        the server there."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "end"}
        ended = await sandboxes.end_for_admin(sandbox_id, reason=body.reason, by=admin)
        return await _priced_answer(sandboxes, ended)

    return routes.router


def _add_crud(routes: GuardedRoutes, sandboxes: Sandboxes) -> None:
    @routes.make("", "Create a sandbox", status_code=201)
    async def create_sandbox(caller: Caller, body: schemas.NewSandboxBody) -> schemas.SandboxAnswer:
        """Creates a sandbox from a template, in a project. It runs after it is started."""
        made = await sandboxes.create(model.NewSandbox(**body.model_dump()), by=caller)
        return schemas.SandboxAnswer.of(
            model.PricedSandbox(made.sandbox, Decimal(0), sandboxes.currency)
        )

    @routes.get("", "List sandboxes")
    async def list_sandboxes(
        caller: Caller,
        paging: Paging,
        status: Annotated[
            schemas.SandboxStatus | None, Query(description="Only this status")
        ] = None,
        project_id: OfProject = None,
        template_id: OfTemplate = None,
        q: Search = None,
        sort: Annotated[Sort, Query(description="`-` before a name: descending")] = "-created_at",
    ) -> schemas.SandboxPage:
        """Your sandboxes, including recycled ones, with their cost so far."""
        only = model.SandboxFilter(status, project_id, template_id, q)
        listing = Listing(only, sort, **paging)
        page = await sandboxes.list(listing, account_id=caller.account_id)
        priced = Page(await sandboxes.with_costs(page.items), page.next_cursor)
        return schemas.SandboxPage.of(priced, schemas.SandboxAnswer.of)

    @routes.get("/{sandbox_id}", "Get a sandbox", 404)
    async def get_sandbox(caller: Caller, sandbox_id: SandboxId) -> schemas.SandboxAnswer:
        """Its state, its address, and its cost so far."""
        found = await sandboxes.get(sandbox_id, account_id=caller.account_id)
        return await _priced_answer(sandboxes, found)

    @routes.patch("/{sandbox_id}", "Change a sandbox", 404, 409)
    async def update_sandbox(
        caller: Caller, sandbox_id: SandboxId, body: schemas.SandboxChangesBody
    ) -> schemas.SandboxAnswer:
        """Name, description, project and access can be changed at any time, resources only while it
        does not run. Earlier usage stays with its previous project."""
        changed = await sandboxes.change(sandbox_id, model.Changes(body.sent()), by=caller)
        return await _priced_answer(sandboxes, changed)


def _add_egress(routes: GuardedRoutes, sandboxes: Sandboxes) -> None:
    @routes.get("/{sandbox_id}/egress", "Get a sandbox's outgoing connections", 404, 409)
    async def get_sandbox_egress(caller: Caller, sandbox_id: SandboxId) -> schemas.EgressAnswer:
        """The outgoing connections of its last run: counters, and the blocked hosts."""
        report = await sandboxes.egress_report(sandbox_id, account_id=caller.account_id)
        return schemas.EgressAnswer.of(report, sandbox_id=sandbox_id)


def _add_program(routes: GuardedRoutes, sandboxes: Sandboxes, programs: SandboxPrograms) -> None:
    @routes.post("/{sandbox_id}/program/start", "Start a sandbox's program", 404, 409)
    async def start_program(caller: Caller, sandbox_id: SandboxId) -> schemas.SandboxAnswer:
        """Returns when it listens, has failed, or does not listen in time: `program` says which. A
        program that runs is left as it is."""
        return await _priced_answer(sandboxes, await programs.start(sandbox_id, by=caller))

    @routes.post("/{sandbox_id}/program/restart", "Restart a sandbox's program", 404, 409)
    async def restart_program(caller: Caller, sandbox_id: SandboxId) -> schemas.SandboxAnswer:
        """With the files and variables as they are now; returns as its start. The machine and its
        other processes stay."""
        return await _priced_answer(sandboxes, await programs.restart(sandbox_id, by=caller))

    @routes.post("/{sandbox_id}/program/stop", "Stop a sandbox's program", 404, 409)
    async def stop_program(caller: Caller, sandbox_id: SandboxId) -> schemas.SandboxAnswer:
        """The sandbox stays up, and can be entered. The program stays stopped until it is started
        by a call."""
        return await _priced_answer(sandboxes, await programs.stop(sandbox_id, by=caller))


def _add_actions(routes: GuardedRoutes, sandboxes: Sandboxes, deadlines: Deadlines) -> None:
    @routes.post("/{sandbox_id}/start", "Start a sandbox", 404, 409)
    async def start_sandbox(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        body: Annotated[
            schemas.StartBody | None, Body(examples=[example_of(schemas.StartBody)])
        ] = None,
    ) -> schemas.SandboxAnswer:
        """Returns when it runs, with its stored files, and its program serves at `preview_url` or
        has failed: `program` says which. If the machine can't be made, or its files can't be
        fetched, the error is a 409 whose code says why, and the sandbox is `stopped`."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "start"}
        options = model.DEFAULT_OPTIONS
        if body is not None:
            options = model.RunOptions(is_launched=body.program, restores_memory=body.memory)
        started = await sandboxes.start(sandbox_id, by=caller, options=options)
        return await _priced_answer(sandboxes, started)

    @routes.post("/{sandbox_id}/extend", "Extend a sandbox's run", 404, 409)
    async def extend_sandbox(
        request: Request, caller: Caller, sandbox_id: SandboxId, body: schemas.ExtendBody
    ) -> schemas.SandboxAnswer:
        """Moves its deadline, `timeout_at`, at most 7 days from now; a later one stays."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "extend"}
        extended = await deadlines.extend(sandbox_id, seconds=body.seconds, by=caller)
        return await _priced_answer(sandboxes, extended)

    @routes.post("/{sandbox_id}/stop", "Stop a sandbox", 404, 409)
    async def stop_sandbox(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        body: Annotated[
            schemas.StopBody | None, Body(examples=[example_of(schemas.StopBody)])
        ] = None,
    ) -> schemas.SandboxAnswer:
        """Its files are kept, and its processes too with `memory`: they go on at its next start. If
        they can't be kept, it runs on. Stopping a sandbox that does not run changes nothing."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "stop"}
        has_memory = None if body is None else body.memory
        stopped = await sandboxes.stop(sandbox_id, has_memory=has_memory, by=caller)
        return await _priced_answer(sandboxes, stopped)

    @routes.delete("/{sandbox_id}", "Recycle a sandbox", 404, 409)
    async def recycle_sandbox(
        request: Request, caller: Caller, sandbox_id: SandboxId
    ) -> schemas.SandboxAnswer:
        """Stops it and deletes its files for good. Its usage and bills stay."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "recycle"}
        return await _priced_answer(sandboxes, await sandboxes.recycle(sandbox_id, by=caller))


async def _priced_answer(sandboxes: Sandboxes, sandbox: model.Sandbox) -> schemas.SandboxAnswer:
    [priced] = await sandboxes.with_costs([sandbox])
    return schemas.SandboxAnswer.of(priced)
