"""The contract `rooms` of `.importlinter`: what a module may import follows from its name.

Inside a part, a module is an error, a model, a port, a store, a use case, an endpoint or wiring,
and imports only what its kind may know. No new module can be forgotten, because each has a name.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_KINDS = (
    ("wiring", ("wiring",), ()),
    ("endpoint", ("http", "schemas", "guards", "pages", "routes"), ("http", "schemas")),
    ("store", ("stores", "sql", "dynamo", "migrations", "tables"), ("sql", "dynamo")),
    ("error", ("errors",), ()),
    ("model", ("model",), ("model",)),
    ("port", ("ports",), ("ports",)),
)
"""Kind, the names that stand for it, and the words that stand for it within a name."""
USE_CASE = "use case"
_MAY_IMPORT = {
    "error": {"error"},
    "model": {"error", "model"},
    "port": {"error", "model", "port"},
    "store": {"error", "model", "port", "store"},
    USE_CASE: {"error", "model", "port", USE_CASE},
    "endpoint": {"error", "model", "port", USE_CASE, "endpoint"},
}
_FRAMEWORKS = {"fastapi", "starlette"}
_ENGINES = {"sqlalchemy", "httpx", "aiohttp", "aiodynamo"}
_MAY_NOT_USE = {
    "error": _FRAMEWORKS | _ENGINES,
    "model": _FRAMEWORKS | _ENGINES,
    "port": _FRAMEWORKS | _ENGINES,
    "store": _FRAMEWORKS,
    USE_CASE: {"sqlalchemy"},
    "endpoint": {"sqlalchemy"},
}


@dataclass(frozen=True)
class Violation:
    importer: str
    kind: str
    imported: str
    imported_kind: str


def kinds_of(lines: Iterable[str]) -> dict[str, str]:
    """From `module = kind`."""
    pairs = (line.split("=") for line in lines)
    return {module.strip(): kind.strip() for module, kind in pairs}


def kind_of(module: str, part: str, kinds: Mapping[str, str]) -> str:
    """The kind of a module of the part, by its folders and its own name."""
    if module in kinds:
        return kinds[module]
    names = module.removeprefix(part).split(".")[1:]
    for kind, exact, words in _KINDS:
        if any(name in exact or set(words) & set(name.split("_")) for name in names):
            return kind
    return USE_CASE


def violations(graph: ImportGraph, part: str, kinds: Mapping[str, str]) -> Iterator[Violation]:
    for importer in sorted(graph.find_descendants(part)):
        kind = kind_of(importer, part, kinds)
        if kind == "wiring":
            continue
        for imported in sorted(graph.find_modules_directly_imported_by(importer)):
            if imported.startswith(f"{part}."):
                imported_kind = kind_of(imported, part, kinds)
                if imported_kind not in _MAY_IMPORT[kind]:
                    yield Violation(importer, kind, imported, imported_kind)
            elif imported.split(".")[0] in _MAY_NOT_USE[kind]:
                yield Violation(importer, kind, imported, "framework or engine")


class RoomsContract(Contract):
    type_name = "rooms"
    parts = fields.ListField(subfield=fields.StringField())
    kinds = fields.ListField(subfield=fields.StringField(), required=False)
    """`module = kind`, for modules whose name does not say their kind."""

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:  # noqa: ARG002
        parts: list[str] = list(self.parts)  # type: ignore[call-overload]
        kinds = kinds_of(list(self.kinds or ()))  # type: ignore[arg-type]
        unknown = kinds.keys() - graph.modules
        found = [each for part in parts for each in violations(graph, part, kinds)]
        found += [Violation(each, kinds[each], "", "does not exist") for each in sorted(unknown)]
        return ContractCheck(kept=not found, metadata={"violations": found})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for each in check.metadata["violations"]:
            output.print_error(
                f"{each.importer} ({each.kind}) imports {each.imported} ({each.imported_kind})"
            )
