"""docs/errors.md as the code has it.

`python -m tests.support.documents.error_page > docs/errors.md`.
"""

import pkgutil
from collections.abc import Iterator
from importlib import import_module

import sandyard
from sandyard.kit.errors import SandyardError
from sandyard.kit.http.error_statuses import status_of

_SECTIONS = {
    "sandyard.kit.": "All parts",
    "sandyard.broker.": "The Broker",
    "sandyard.telemetry.": "Telemetry",
    "sandyard.platform.": "The Platform",
    "sandyard.previews.": "Previews",
    "sandyard.gateway.": "The gateway",
    "sandyard.e2b_api.": "E2B's API (with E2B's statuses and shapes)",
    "sandyard.runtime.": "The runtime",
}
_NOT_IMPORTED = ("__main__", ".migrations", ".supervisor", ".egress_proxy", ".launch", ".forward")
_OF_COMMANDS = ("sandyard.tools.",)
_HEAD = """# Errors

All error codes of all parts, with their statuses and messages. Every error has the same shape:
`{"error": {"code", "message", "request_id", "retry_after"?, "details"?}}`. Codes are stable;
messages are for people and may change. An error with `retry_after` also has a `Retry-After` header.
For what a caller should do, see also [api.md](api.md), [devices.md](devices.md),
[platform.md](platform.md), [gateway.md](gateway.md), [e2b.md](e2b.md) and
[previews.md](previews.md).
"""


def error_page() -> str:
    lines = [_HEAD]
    kinds = sorted({*_kinds()}, key=lambda kind: (status_of(kind_of(kind)), kind.code))
    for prefix, title in _SECTIONS.items():
        lines += [f"## {title}", "", "| status | code | message |", "|---|---|---|"]
        lines += [
            f"| {status_of(kind_of(kind))} | `{kind.code}` | {_message(kind)} |"
            for kind in kinds
            if kind.__module__.startswith(prefix) and not kind.__module__.startswith(_OF_COMMANDS)
        ]
        lines.append("")
    return "\n".join(lines)


def kind_of(kind: type[SandyardError]) -> SandyardError:
    """One of this kind, however it is made."""
    return kind.__new__(kind)


def _message(kind: type[SandyardError]) -> str:
    return " ".join((kind.__doc__ or "").split()).replace("|", "\\|")


def _kinds() -> Iterator[type[SandyardError]]:
    """Each code once; a subclass with the code of its parent is told by it."""
    for module in pkgutil.walk_packages(sandyard.__path__, "sandyard."):
        if not module.name.endswith(_NOT_IMPORTED) and ".migrations." not in module.name:
            import_module(module.name)
    waiting: list[type[SandyardError]] = [SandyardError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.code != getattr(kind.__base__, "code", None):
            yield kind


if __name__ == "__main__":
    print(error_page(), end="")  # noqa: T201 - that is what it is for
