"""Finds what a command names by id or name: a sandbox, a project, a template …"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandyard_client import Client

_ID = re.compile(r"[a-z0-9]{3,4}-[0-9a-z]{10,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAMES = ("name", "username", "reference")
_GONE = "recycled"


def id_of(client: "Client", sandbox: str) -> str:
    """Raises NotFoundError if the account has no undeleted sandbox of that name."""
    return find_id(client, "list_sandboxes", "sandbox_id", sandbox)


def with_ids(client: "Client", operation: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with ids instead of names. Raises NotFoundError if there is none of that name."""
    found = dict(values)
    for field, value in values.items():
        listing = _listing(operation, field)
        if listing is not None and isinstance(value, str):
            found[field] = find_id(client, listing, field, value)
    return found


def find_id(client: "Client", listing: str, field: str, text: str) -> str:
    from sandyard_client import NotFoundError
    from sandyard_client.operations import listed, operations

    if _ID.fullmatch(text):
        return text
    known = {each["name"] for each in operations()[listing]["fields"]}
    search = {name: text for name in ("q", "name") if name in known}
    flow = listed(client.calls, listing, {**dict([*search.items()][:1]), "limit": 100})
    for each in client.iterate(flow):
        if text in [each.get(name) for name in _NAMES] and each.get("status") != _GONE:
            return str(each[field])
    noun = field.removesuffix("_id").replace("_", " ")
    code = f"{noun.upper().replace(' ', '_')}_UNKNOWN"
    raise NotFoundError(404, code, f"There is no {noun} {text}.")


def _listing(operation: str, field: str) -> str | None:
    """The operation that lists all of what the field names, if these have names."""
    from sandyard_client.operations import operations

    credential = operations()[operation]["credential"]
    for name, each in operations().items():
        [first, *others] = each.get("answer_fields") or [""]
        is_whole = "listing" in each and "{" not in each["path"]
        has_names = bool({*_NAMES} & {*others}) and each["credential"] == credential
        if is_whole and first == field and has_names:
            return name
    return None
