"""Calls of accounts about their sandboxes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse

from sandyard.kit.http import errors
from sandyard.kit.paging import DEFAULT_LIMIT
from sandyard.platform.access import OPENED_BY_ACCOUNTS, AccessGuard
from sandyard.platform.fields import Cursor, Limit, Search
from sandyard.platform.principal import Principal
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.sandboxes.ports import SandboxQuery
from sandyard.platform.sandboxes.schemas import (
    ChangesBody,
    LogsAnswer,
    NewSandboxBody,
    SandboxAnswer,
    SandboxPage,
)
from sandyard.platform.sandboxes.service import Sandboxes

_LOOK_SEC = 0.2

SandboxId = Annotated[str, Path(description="As the call that made it answered")]
Sort = Literal["created_at", "-created_at", "name", "-name", "updated_at", "-updated_at"]
OtherId = Annotated[str | None, Query(max_length=25, pattern=r"^[a-z0-9-]+$")]
Lines = Annotated[int, Query(ge=1, le=1000)]

_START = """Answers when it serves at `preview_url`, with the files that were kept. What kept it
from that is a 409 with a code of its own, and then it is `stopped`."""
_STOP = "Its files are kept. Stopping one that does not run changes nothing."


def create_sandboxes_router(sandboxes: Sandboxes, guard: AccessGuard, *, prefix: str) -> APIRouter:
    router = APIRouter(prefix=f"{prefix}/sandboxes", tags=["sandboxes"])
    Caller = Annotated[Principal, Depends(guard.account)]  # noqa: N806 - a type

    @router.post(
        "",
        summary="Make a sandbox",
        status_code=201,
        response_model=SandboxAnswer,
        responses=errors(400, 401, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def create(caller: Caller, body: Annotated[NewSandboxBody, Body()]) -> Any:
        """Of a template, in a project. It runs once it is started."""
        made = await sandboxes.create(body.new(), account_id=caller.account_id)
        return SandboxAnswer.of(made)

    @router.get(
        "",
        summary="List sandboxes",
        response_model=SandboxPage,
        responses=errors(400, 401, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def list_sandboxes(
        caller: Caller,
        status: Status | None = None,
        project_id: OtherId = None,
        template_id: OtherId = None,
        q: Search = None,
        sort: Sort = "-created_at",
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = None,
    ) -> Any:
        """Yours, also those that were recycled; with what each has cost up to now."""
        query = SandboxQuery(status, project_id, template_id, q, sort)
        page = await sandboxes.list(
            account_id=caller.account_id, query=query, limit=limit, cursor=cursor
        )
        shown = [SandboxAnswer.of(each) for each in page.items]
        return SandboxPage(sandboxes=shown, next_cursor=page.next_cursor)

    @router.get(
        "/{sandbox_id}",
        summary="Look at a sandbox",
        response_model=SandboxAnswer,
        responses=errors(401, 404, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def get(caller: Caller, sandbox_id: SandboxId) -> Any:
        """Its state, where it serves, and what it has cost up to now."""
        return SandboxAnswer.of(await sandboxes.get(sandbox_id, account_id=caller.account_id))

    @router.patch(
        "/{sandbox_id}",
        summary="Change a sandbox",
        response_model=SandboxAnswer,
        responses=errors(400, 401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def change(
        caller: Caller, sandbox_id: SandboxId, body: Annotated[ChangesBody, Body()]
    ) -> Any:
        """Its name and description at any time, its resources while it does not run."""
        changed = await sandboxes.change(sandbox_id, body.changes(), account_id=caller.account_id)
        return SandboxAnswer.of(changed)

    actions = (
        ("start", sandboxes.start, "Start a sandbox", _START),
        ("stop", sandboxes.stop, "Stop a sandbox", _STOP),
    )
    for action, call, summary, text in actions:
        router.add_api_route(
            f"/{{sandbox_id}}/{action}",
            _acting(call, action, Caller),
            methods=["POST"],
            name=f"{action} own sandbox",
            summary=summary,
            description=text,
            response_model=SandboxAnswer,
            responses=errors(400, 401, 404, 409, 503),
            openapi_extra=OPENED_BY_ACCOUNTS,
        )

    @router.delete(
        "/{sandbox_id}",
        summary="Recycle a sandbox",
        response_model=SandboxAnswer,
        responses=errors(401, 404, 409, 503),
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def recycle(request: Request, caller: Caller, sandbox_id: SandboxId) -> Any:
        """Stops it and removes its files for good. Its usage and bills stay."""
        request.state.log |= {"sandbox_id": sandbox_id, "action": "recycle"}
        gone = await sandboxes.recycle(sandbox_id, account_id=caller.account_id)
        return SandboxAnswer.of(gone)

    @router.get(
        "/{sandbox_id}/logs",
        summary="What the program wrote",
        response_class=Response,
        responses={
            200: {
                "model": LogsAnswer,
                "description": "The last lines; as text, one by one, if they are followed",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            },
            **errors(400, 401, 404, 409, 503),
        },
        openapi_extra=OPENED_BY_ACCOUNTS,
    )
    async def logs(
        request: Request,
        caller: Caller,
        sandbox_id: SandboxId,
        lines: Lines = 100,
        follow: Annotated[bool, Query()] = False,  # noqa: FBT002
    ) -> Any:
        """Of its last run. With `follow` the answer goes on until the program has ended."""
        account_id = caller.account_id
        if follow:
            written = await sandboxes.follow_logs(sandbox_id, account_id=account_id, lines=lines)
            text = _as_text(written, lambda: bool(request.state.in_flight.draining))
            return StreamingResponse(text, media_type="text/plain")
        tail = await sandboxes.tail_logs(sandbox_id, account_id=account_id, lines=lines)
        body = LogsAnswer(sandbox_id=sandbox_id, lines=list(tail))
        return Response(body.model_dump_json(), media_type="application/json")

    return router


def _acting(call: Any, action: str, caller_type: Any) -> Any:
    async def act(request: Request, caller: caller_type, sandbox_id: SandboxId) -> Any:
        request.state.log |= {"sandbox_id": sandbox_id, "action": action}
        return SandboxAnswer.of(await call(sandbox_id, account_id=caller.account_id))

    return act


async def _as_text(
    lines: AsyncIterator[str], is_stopping: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """A server that stops ends what goes on for as long as a program does."""
    while not is_stopping():
        line = asyncio.ensure_future(anext(lines, None))
        try:
            while not line.done() and not is_stopping():
                await asyncio.wait({line}, timeout=_LOOK_SEC)
            if not line.done() or line.result() is None:
                return
            yield f"{line.result()}\n".encode()
        finally:
            line.cancel()
