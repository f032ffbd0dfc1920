"""Calls about images."""

from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, StrictStr, model_validator

from sandyard.kit.http.schemas import PageAnswer, Paging, example
from sandyard.platform.access.guard import AccessGuard
from sandyard.platform.access.principal import Principal
from sandyard.platform.access.routes import Caller, account_routes
from sandyard.platform.entities.model import Listing
from sandyard.platform.http.fields import ID, VISIBLE, Answer, RequestBody, Search
from sandyard.platform.images.errors import SecretMissingError
from sandyard.platform.images.model import Image, ImageFilter, ImageStatus
from sandyard.platform.images.service import Images
from sandyard.platform.templates.model import VARIABLE_NAME
from sandyard.platform.variables.service import ParentProjects, Variables
from sandyard.runtime.images.model import Credentials

_TAR = "application/x-tar"


class PullBody(RequestBody):
    model_config = example(reference="registry.example.com/shop/web:1.4")

    reference: Annotated[
        StrictStr,
        Field(
            min_length=1,
            max_length=255,
            pattern=VISIBLE,
            description="`host/repository` with `:tag` or `@sha256:…`; Docker Hub's without a host",
        ),
    ]
    project_id: Annotated[
        StrictStr | None,
        Field(max_length=25, pattern=ID, description="The project that has the secret"),
    ] = None
    secret: Annotated[
        StrictStr | None,
        Field(
            max_length=128,
            pattern=VARIABLE_NAME,
            description="Name of that project's secret with `user:password` for the registry",
        ),
    ] = None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.secret is None) != (self.project_id is None):
            raise ValueError("`secret` and `project_id` go together")
        return self


class ImageProgress(BaseModel):
    pulled_bytes: int
    total_bytes: int


class ImageAnswer(Answer):
    model_config = example(
        image_id="img-7c2e9g4j1m6p3s8vx",
        reference="registry.example.com/shop/web:1.4",
        status="ready",
        reason=None,
        progress={"pulled_bytes": 31_457_280, "total_bytes": 31_457_280},
        digest="sha256:6c3c624b58dbbcd3c0dd82b4c53f04194d1247c6eebdaab7c610cf7d66709b3b",
        size_bytes=31_457_280,
        unpacked_bytes=83_886_080,
        command=["/usr/local/bin/web"],
        user_name="web",
        folder="/srv",
        ports=[8080],
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:12Z",
    )

    image_id: str
    reference: str
    status: ImageStatus
    reason: str | None = Field(description="Why it failed")
    progress: ImageProgress | None = Field(description="Once it is known how large it is")
    digest: str | None
    size_bytes: int | None = Field(description="Of its parts as they are stored and billed")
    unpacked_bytes: int | None
    command: list[str] | None = Field(description="Its entry point with its arguments")
    user_name: str | None
    folder: str | None
    ports: list[int] | None = Field(description="The TCP ports that it exposes")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, image: Image) -> Self:
        pulled, total = image.pulled_bytes, image.total_bytes
        if image.status is ImageStatus.READY:
            pulled = total = image.size_bytes
        known = {"pulled_bytes": pulled, "total_bytes": total} if total else None
        return super().of(image, progress=known)


class ImagePage(PageAnswer):
    images: list[ImageAnswer]
    next_cursor: str | None


_ImageId = Annotated[str, Path(description="The id from the response that created it")]
_ArchiveName = Annotated[
    str, Query(min_length=1, max_length=255, pattern=VISIBLE, description="A name for the image")
]


def create_images_router(
    images: Images, variables: Variables, projects: ParentProjects, guard: AccessGuard
) -> APIRouter:
    routes = account_routes(guard, "/images", tag="images")

    async def credentials_of(body: PullBody, caller: Principal) -> Credentials | None:
        if body.secret is None or body.project_id is None:
            return None
        await projects.require(body.project_id, account_id=caller.account_id, is_changed=False)
        value = await variables.value(body.project_id, body.secret)
        if value is None:
            raise SecretMissingError
        return Credentials.of(value)

    @routes.make("", "Pull an image", 404, 409, status_code=202)
    async def pull_image(body: PullBody, caller: Caller) -> ImageAnswer:
        """From a registry, in the background: its status is `pulling`, then `ready`, or `failed`
        with the reason."""
        credentials = await credentials_of(body, caller)
        return ImageAnswer.of(await images.pull(caller, body.reference, credentials))

    @routes.post(
        "/import",
        "Import an image",
        *(409, 413),
        status_code=202,
        described={
            "requestBody": {
                "required": True,
                "content": {_TAR: {"schema": {"type": "string", "format": "binary"}}},
            }
        },
        is_streamed=True,
    )
    async def import_image(request: Request, caller: Caller, name: _ArchiveName) -> ImageAnswer:
        """The body is an archive: an OCI layout, or an output of `docker save`. It is read in the
        background, as a pull."""
        return ImageAnswer.of(await images.import_archive(caller, name, request.stream()))

    @routes.get("", "List your images")
    async def list_images(
        caller: Caller,
        paging: Paging,
        q: Search = None,
        status: Annotated[ImageStatus | None, Query(description="Only this status")] = None,
    ) -> ImagePage:
        """Newest first. `q` searches the reference."""
        listing = Listing(ImageFilter(status, q), "-created_at", **paging)
        return ImagePage.of(await images.list(caller.account_id, listing), ImageAnswer.of)

    @routes.get("/{image_id}", "Get an image", 404)
    async def get_image(image_id: _ImageId, caller: Caller) -> ImageAnswer:
        """One of your images."""
        return ImageAnswer.of(await images.get(caller.account_id, image_id))

    @routes.delete("/{image_id}", "Delete an image", 404, 409, status_code=204)
    async def delete_image(image_id: _ImageId, caller: Caller) -> None:
        """Refused while a template or a sandbox uses it. A pull that is under way is ended."""
        await images.delete(caller, image_id)

    return routes.router
