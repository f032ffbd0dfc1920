"""Routes that FastAPI prepares on first use instead of at startup."""

import asyncio
from collections.abc import Callable, Coroutine
from threading import RLock
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path, get_name
from starlette.types import ASGIApp, Receive, Scope, Send

from sandyard.kit.http.bodies import JsonRequest

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
_PREPARING = RLock()


class OnDemandRoute(APIRoute):
    """A FastAPI route that holds only what matching needs. The rest, such as its parameter models
    and its handler, is prepared on first access: for all routes together this takes a fifth of the
    startup time, and most are not called soon."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint, self._options = path, endpoint, options
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.name = options.get("name") or get_name(endpoint)
        self.include_in_schema = options.get("include_in_schema", True)
        self.is_open = "security" not in (options.get("openapi_extra") or {})
        """Whether it needs no credential."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle

    def __getattr__(self, name: str) -> Any:
        """Called only for attributes that are not set yet. Locked, as the document is built in
        another thread."""
        with _PREPARING:
            options = self.__dict__.pop("_options", None)
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
            return object.__getattribute__(self, name)


class OnDemandApp:
    """An application that is imported and created when it is prepared or first called: in a thread,
    so that other requests are not blocked."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._app: ASGIApp | None = None
        self._making = asyncio.Lock()

    async def prepare(self) -> ASGIApp:
        if self._app is None:
            async with self._making:
                if self._app is None:
                    self._app = await asyncio.to_thread(self._make)
        return self._app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app or await self.prepare()
        await app(scope, receive, send)
