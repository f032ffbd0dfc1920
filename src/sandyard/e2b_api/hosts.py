"""Which requests are for E2B's API."""

import re
from dataclasses import dataclass

from starlette.types import Scope

from sandyard.kit.http.security import values_of

PREFIX = "/e2b"
API = "api"
"""The control API's host in the sandboxes' domain."""
ENVD_PORT = 49983
SANDBOX = b"e2b-sandbox-id"
LABEL = re.compile(r"([1-9]\d{0,4})-(sbx-[a-z0-9-]+)")


def is_below_prefix(path: str) -> bool:
    return path == PREFIX or path.startswith(f"{PREFIX}/")


@dataclass(frozen=True, slots=True)
class E2bHosts:
    """Requests below `/e2b`; at the host `api` of the sandboxes' domain; at port 49983 of every
    sandbox; and links to files: SDKs that are configured with a single origin drop its path."""

    domain: str

    def accepts(self, scope: Scope) -> bool:
        if scope["type"] != "http":
            return False
        host = self.label(scope)
        if host is not None:
            found = LABEL.fullmatch(host)
            return host == API or (found is not None and int(found[1]) == ENVD_PORT)
        path: str = scope["path"]
        return is_below_prefix(path) or (
            path == "/files" and b"signature=" in scope["query_string"]
        )

    def label(self, scope: Scope) -> str | None:
        """The part of the host before the sandboxes' domain."""
        for host in values_of(scope["headers"], b"host"):
            name = host.decode("latin-1").lower().partition(":")[0]
            if name.endswith(f".{self.domain}"):
                return name.removesuffix(f".{self.domain}")
        return None
