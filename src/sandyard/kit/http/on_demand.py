"""Routes that FastAPI prepares when they are first called or described, and not at the start."""

from collections.abc import Callable
from threading import RLock
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import compile_path, get_name

_PREPARING = RLock()


class OnDemandRoute(APIRoute):
    """A route of FastAPI's with what is needed to find it. All else about it, as the models of its
    parameters and its handler, is prepared when it is first asked for: for all routes together
    that is a fifth of a start, and most are not called soon.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.path, self.endpoint, self._options = path, endpoint, options
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in options.get("methods") or ("GET",)}
        self.name = options.get("name") or get_name(endpoint)
        self.include_in_schema = options.get("include_in_schema", True)

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there yet. The document is made in a thread of its own."""
        with _PREPARING:
            options = self.__dict__.pop("_options", None)
            if options is not None:
                super().__init__(self.path, self.endpoint, **options)
            return object.__getattribute__(self, name)
