"""Calls of the API by the ids of its operations; `generate_operations.py` writes what they are."""

import json
import re
import uuid
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from sandyard_client.calls import Calls
from sandyard_client.errors import NotFoundError
from sandyard_client.steps import Flow
from sandyard_client.wire import Credential, Request

OMIT: Any = object()
"""The value of a field that is not sent, where None is a value."""
_SET_A_STATE = frozenset(
    ("start_sandbox", "stop_sandbox", "start_program", "stop_program", "sync_preview")
)
"""Calls that make nothing and end the same, however often they are made."""
_SLOW = frozenset(
    ("start_sandbox", "stop_sandbox", "recycle_sandbox", "restart_program", "sync_preview")
)
_SLOW_SEC = 600.0

Operation = Mapping[str, Any]


@cache
def operations() -> Mapping[str, Operation]:
    """Every operation, by its id."""
    text = (files(__package__) / "operations.json").read_text()
    found: dict[str, Operation] = json.loads(text)
    return found


def request_of(name: str, values: Mapping[str, Any], key: str | None = None) -> Request:
    """The request with these fields, by their names in the document. One that makes something has
    an idempotency key, so that it can be repeated."""
    operation = operations()[name]
    sent = {field: value for field, value in values.items() if value is not OMIT}
    places = {
        place: {each["name"]: sent[each["name"]] for each in operation["fields"]
                if each["in"] == place and each["name"] in sent}
        for place in ("path", "query", "body")
    }  # fmt: skip
    is_keyed = operation.get("is_keyed", False)
    return Request(
        operation["method"],
        re.sub(
            r"{(\w+)}", lambda at: quote(str(places["path"][at[1]]), safe=""), operation["path"]
        ),
        Credential(operation["credential"]),
        is_repeatable=is_keyed or operation["method"] != "POST" or name in _SET_A_STATE,
        headers={"Idempotency-Key": key or str(uuid.uuid4())} if is_keyed else {},
        query=places["query"],
        json=places["body"] if places["body"] or operation.get("needs_body") else None,
        timeout_sec=_SLOW_SEC if name in _SLOW else None,
    )


def perform(
    calls: Calls, name: str, values: Mapping[str, Any], key: str | None = None
) -> Flow[Any]:
    """The JSON of the response. What a lost attempt has deleted already is no error."""
    request = request_of(name, values, key)
    used = calls.within(_SLOW_SEC) if name in _SLOW else calls
    try:
        return (yield from used.json(request))
    except NotFoundError as error:
        if request.method != "DELETE" or not error.may_be_done:
            raise


def listed(
    calls: Calls, name: str, values: Mapping[str, Any], limit: int | None = None
) -> Flow[None]:
    """Emits each item of a listing, page by page, up to `limit`."""
    return calls.pages(request_of(name, values), operations()[name]["listing"], limit=limit)
