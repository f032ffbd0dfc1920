"""Routes that FastAPI prepares on first use instead of at startup."""

from collections.abc import Callable
from threading import RLock
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

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

    def __getattr__(self, name: str) -> Any:
        """Called only for attributes that are not set yet. Locked, as the document is built in
        another thread."""
        with _PREPARING:
            options = self.__dict__.pop("_options", None)
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
            return object.__getattribute__(self, name)
