"""The call that looks at a preview with a browser."""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any, Self

from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict, Field

from sandyard.kit.http.routes import GuardedRoutes, caller_of
from sandyard.kit.http.schemas import Documented, eg, example
from sandyard.previews.look.model import Look, Viewport
from sandyard.previews.look.service import Looks

_PNG = "iVBORw0KGgo="


class LookBody(BaseModel):
    model_config = ConfigDict(extra="forbid", **example(path="/", width=1280, height=800))

    path: Annotated[str, Field(max_length=2000, pattern=r"^/[!-~]*$")] = Field(
        "/", description="The page below the preview's address"
    )
    width: Annotated[int, Field(ge=200, le=1920)] = 1280
    height: Annotated[int, Field(ge=200, le=2000)] = 800


class ConsoleMessageAnswer(BaseModel):
    level: str = Field(description="`log`, `info`, `warning`, `error`, …")
    text: str


class FailedRequestAnswer(BaseModel):
    url: str
    method: str
    status: int | None = Field(description="Null if there was no response")
    error: str


class PreviewLookAnswer(Documented):
    url: str = eg("http://8080-prj-4k8s0m2q6w1c9x7ab.localhost:8080/")
    title: str = eg("My app")
    screenshot: str | None = eg(_PNG, description="A PNG as base64")
    console: Sequence[ConsoleMessageAnswer] = eg([{"level": "error", "text": "x is not defined"}])
    failed_requests: Sequence[FailedRequestAnswer] = eg([])
    is_complete: bool = eg(
        True, description="False if the page was still busy at the time limit of 25 s"
    )

    @classmethod
    def of(cls, look: Look) -> Self:
        image = None if look.screenshot is None else base64.b64encode(look.screenshot).decode()
        return cls.model_validate(asdict(look) | {"screenshot": image})


Caller = Annotated[Any, Depends(caller_of)]


def add_look(routes: GuardedRoutes, looks: Looks) -> None:
    @routes.post("/sandbox/look", "Look at a preview", 409, 501)
    async def look_at_preview(
        caller: Caller,
        project_id: Annotated[str, Path(description="The id of one of your projects")],
        body: LookBody,
    ) -> PreviewLookAnswer:
        """Loads the preview in a headless browser: what it looks like, and what it complains of.
        The page reaches its preview and nothing else. One at a time per account."""
        viewport = Viewport(body.width, body.height)
        found = await looks.look(
            project_id, account_id=caller.account_id, path=body.path, viewport=viewport
        )
        return PreviewLookAnswer.of(found)
