"""A published version as an ASGI application: its files, with a page for what is not there."""

import mimetypes
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandyard.previews.errors import NotPublishedError
from sandyard.previews.files import ProjectFile, Publication
from sandyard.previews.launcher.serving import NOT_FOUND
from sandyard.previews.ports import AccountLookup, PreviewStore, ProjectLookup

_TEXTS = ("text/", "application/javascript", "application/json", "image/svg+xml")


@dataclass(frozen=True, slots=True)
class PublishedSites:
    """A path is a file; or a folder with an `index.html`; or a name without `.html`. For any other
    there is the fallback page, if its last part has no extension; else the project's own `404.html`
    or ours."""

    store: PreviewStore
    projects: ProjectLookup
    accounts: AccountLookup

    async def find_domain(self, domain: str) -> str | None:
        """The target that is shown at this host."""
        project_id = await self.store.project_of_domain(domain)
        return None if project_id is None else "pub" + project_id.removeprefix("prj")

    async def serve(self, target_id: str, scope: Scope, receive: Receive, send: Send) -> str | None:
        """The sandbox of an application, which answers instead. Raises NotPublishedError, also
        while the account is deactivated."""
        found = await self._open(target_id)
        if found.sandbox_id is not None:
            return found.sandbox_id
        if scope["type"] != "http":
            raise NotPublishedError
        request = Request(scope)
        response = Response(status_code=405, headers={"Allow": "GET, HEAD"})
        if request.method in ("GET", "HEAD"):
            response = await self._answer(_project_id(target_id), found, request)
        await response(scope, receive, send)
        return None

    async def _open(self, target_id: str) -> Publication:
        project_id = _project_id(target_id)
        found, preview = await self.store.publication(project_id), await self.store.find(project_id)
        if found is None or preview is None:
            raise NotPublishedError
        project = await self.projects.find(preview.account_id, project_id)
        if project is None or await self.accounts.deactivated({preview.account_id}):
            raise NotPublishedError
        return found

    async def _answer(self, project_id: str, found: Publication, request: Request) -> Response:
        path = normpath("/" + unquote(request.scope["raw_path"].decode("latin-1"))).strip("/")
        path = path.replace("\0", "")
        wanted = [path, f"{path}/index.html".lstrip("/"), f"{path}.html"]
        if found.fallback is not None and "." not in path.rpartition("/")[2]:
            wanted.append(found.fallback)
        files = {each.path: each for each in await self.store.published(project_id, wanted)}
        for name in wanted:
            if name in files:
                return _shown(files[name], request, tag=f'"{found.published_at.timestamp()}"')
        for own in await self.store.published(project_id, ["404.html"]):
            return Response(own.content, 404, _HEADERS, "text/html")
        return Response(NOT_FOUND, 404, _HEADERS, "text/html")


def _project_id(target_id: str) -> str:
    return "prj" + target_id.removeprefix("pub")


_HEADERS = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}


def _shown(file: ProjectFile, request: Request, *, tag: str) -> Response:
    headers = _HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    kind = mimetypes.guess_type(file.path)[0] or "application/octet-stream"
    charset = "; charset=utf-8" if kind.startswith(_TEXTS) else ""
    response = Response(file.content, headers=headers | {"Content-Type": kind + charset})
    if request.method == "HEAD":
        response.body = b""
    return response
