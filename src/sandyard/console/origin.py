"""Whether a request came from a page of this console, rather than of another origin."""

from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


def may_act(request: HTTPConnection) -> bool:
    """A cookie alone proves nothing: a sandbox's page, which is same-site, sends it too. Requests
    that change something, and WebSockets, must come from our own origin."""
    is_read = request.scope["type"] == "http" and request.scope["method"] in _SAFE
    site = request.headers.get("sec-fetch-site")
    if is_read:  # browsers hide responses from other origins; links from them are fine
        return True
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc == request.headers.get("host")
