"""Finds a sandbox of the account by id or name."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandyard_client import Client


def id_of(client: "Client", sandbox: str) -> str:
    """Raises NotFoundError if the account has no undeleted sandbox of that name."""
    from sandyard_client import NotFoundError
    from sandyard_client.sandbox_flows import about

    if sandbox.startswith("sbx-"):
        return sandbox
    listing = about("GET", "/sandboxes", query={"q": sandbox, "limit": 100})
    for each in client.items(listing, "sandboxes"):
        if each["name"] == sandbox and each["status"] != "recycled":
            return str(each["sandbox_id"])
    raise NotFoundError(404, "SANDBOX_UNKNOWN", f"There is no sandbox {sandbox}.")
