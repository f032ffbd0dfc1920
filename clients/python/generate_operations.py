"""Writes what is generated from a server's OpenAPI document.

    python clients/python/generate_operations.py http://127.0.0.1:8080/openapi.json

- `sandyard_client/models.py`: what calls answer, by `generate_models.py`;
- `sandyard_client/operations.json`: each operation with its fields, for calls by name;
- `sandyard_client/nouns.py`: the Platform's nouns of `nouns.json`, sync and async;
- `clients/typescript/src/nouns.ts`: the same nouns.

A test compares the files with what this would write, so they are never behind the document.
"""

import json
import keyword
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generate_models import SCHEMAS, TARGET, annotation, docstring, render

Schema = Mapping[str, Any]

HERE = Path(__file__).parent
OPERATIONS = HERE / "src" / "sandyard_client" / "operations.json"
PYTHON = HERE / "src" / "sandyard_client" / "nouns.py"
TYPESCRIPT = HERE.parent / "typescript" / "src" / "nouns.ts"
NOUNS: dict[str, dict[str, Any]] = json.loads((HERE / "nouns.json").read_text())

_CREDENTIALS = {
    "TrackToken": "track",
    "AdminToken": "admin",
    "TelemetryToken": "telemetry",
    "DeviceKey": "device",
    "Login": "account",
}
_NAMED_BY_THE_KEY = {"allocate_sandbox", "queue_for_sandbox", "release_lease", "leave_queue"}
"""Their key names a lease: a new one for each call would make more of them."""
_JSON = "application/json"


def described(document: Schema) -> dict[str, dict[str, Any]]:
    """The operations by their ids."""
    found = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            found[operation["operationId"]] = _operation(document, path, method, operation)
    return dict(sorted(found.items()))


def _operation(document: Schema, path: str, method: str, operation: Schema) -> dict[str, Any]:
    fields = [*_parameters(document, operation), *_body(document, operation)]
    answer = _answer(document, operation)
    listing = _listing(answer)
    item = _resolved(document, listing[1] if listing else answer or {})
    name = operation["operationId"]
    has_key = any(each["name"] == "Idempotency-Key" for each in operation.get("parameters", ()))
    known: dict[str, Any] = {
        "method": method.upper(),
        "path": path,
        "credential": _credential(operation),
        "needs_body": operation.get("requestBody", {}).get("required", False),
        "is_keyed": has_key and name not in _NAMED_BY_THE_KEY,
        "summary": operation["summary"],
        "description": operation.get("description"),
        "listing": listing[0] if listing else None,
        "answer": item.get("title"),
        "answer_fields": [*item.get("properties", ())],
        "fields": fields,
    }
    return {key: value for key, value in known.items() if value not in (None, False)}


def _credential(operation: Schema) -> str:
    schemes = [name for each in operation.get("security") or () for name in each]
    return next((_CREDENTIALS[name] for name in schemes if name in _CREDENTIALS), "none")


def _parameters(document: Schema, operation: Schema) -> Iterator[dict[str, Any]]:
    for each in operation.get("parameters", ()):
        if each["in"] != "header" and each["name"] != "cursor":
            is_required = each.get("required", False)
            schema = {"description": each.get("description"), **each["schema"]}
            yield _field(document, each["name"], each["in"], schema, is_required)


def _body(document: Schema, operation: Schema) -> Iterator[dict[str, Any]]:
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        schema = _resolved(document, content.get("schema", {}))
        if kind != _JSON or "properties" not in schema:
            continue
        required = schema.get("required", ())
        for name, about in schema["properties"].items():
            yield _field(document, name, "body", about, name in required)


def _field(
    document: Schema, name: str, place: str, schema: Schema, is_required: bool
) -> dict[str, Any]:
    whole = _resolved(document, schema)
    kind = whole.get("type") or ("string" if "enum" in whole else "any")
    kind = "any" if "properties" in whole else kind
    known = {
        "name": name,
        "in": place,
        "type": kind,
        "required": is_required,
        "nullable": any(each.get("type") == "null" for each in schema.get("anyOf", ())),
        "choices": whole.get("enum"),
        "format": whole.get("format"),
        "items": _items(document, whole) if kind == "array" else None,
        "python": annotation(_inlined(document, schema)),
        "description": schema.get("description") or whole.get("description"),
    }
    return {key: value for key, value in known.items() if value not in (None, False)}


def _items(document: Schema, schema: Schema) -> dict[str, Any]:
    item = _resolved(document, schema["items"])
    known = {"type": item.get("type", "string"), "choices": item.get("enum")}
    return {key: value for key, value in known.items() if value is not None}


def _inlined(document: Schema, schema: Schema) -> Schema:
    """Without references: an enumeration by its values, anything else as a mapping."""
    if "$ref" in schema:
        found = _resolved(document, schema)
        return found if "enum" in found else {"type": "object"}
    if "anyOf" in schema:
        return {"anyOf": [_inlined(document, each) for each in schema["anyOf"]]}
    if "items" in schema:
        return {**schema, "items": _inlined(document, schema["items"])}
    return schema


def _resolved(document: Schema, schema: Schema) -> Schema:
    """The schema itself, of a reference or of what may be null."""
    if "$ref" in schema:
        return dict(document["components"]["schemas"][schema["$ref"].removeprefix(SCHEMAS)])
    if "anyOf" in schema:
        kinds = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(kinds) > 1:
            return {"type": "any" if any("array" in each.values() for each in kinds) else "string"}
        return _resolved(document, kinds[0])
    return schema


def _answer(document: Schema, operation: Schema) -> Schema | None:
    for status in ("201", "200", "202"):
        content = operation["responses"].get(status, {}).get("content", {})
        if _JSON in content and "$ref" in content[_JSON].get("schema", {}):
            return _resolved(document, content[_JSON]["schema"])
    return None


def _listing(answer: Schema | None) -> tuple[str, Schema] | None:
    """The name of a page's list of items, and the schema of an item."""
    if answer is None or not answer["title"].endswith(("Page", "List")):
        return None
    for name, about in answer["properties"].items():
        if about.get("type") == "array":
            return name, about["items"]
    return None


def render_operations(operations: Mapping[str, Any]) -> str:
    lines = (f"{json.dumps(name)}: {_line(each)}" for name, each in operations.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(operation: Mapping[str, Any]) -> str:
    fields = [
        {key: value for key, value in each.items() if key != "python"}
        for each in operation["fields"]
    ]
    return json.dumps({**operation, "fields": fields})


_PYTHON_HEADER = '''"""The Platform's nouns, as `generate_operations.py` writes them."""

# ruff: noqa: A002, E501 - names and lines of the API's document
# fmt: off

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from sandyard_client import models
from sandyard_client.noun import OMIT, AsyncNoun, Noun
'''


def render_python(operations: Mapping[str, Any]) -> str:
    blocks = [_PYTHON_HEADER]
    for prefix in ("", "Async"):
        blocks += [_python_class(operations, prefix, name) for name in NOUNS]
        blocks.append(_python_platform(prefix))
    return "\n\n".join(blocks) + "\n"


def _python_class(operations: Mapping[str, Any], prefix: str, name: str) -> str:
    noun = NOUNS[name]
    lines = [f"class {prefix}{name}({prefix}Noun):", *docstring(noun["about"])]
    for method, operation in noun["operations"].items():
        lines += ["", *_python_method(operations[operation], prefix, noun, method, operation)]
    return "\n".join(lines)


def _python_method(
    about: Schema, prefix: str, noun: Schema, method: str, operation: str
) -> Iterator[str]:
    answer = f"models.{about['answer']}" if "answer" in about else None
    is_listing = "listing" in about
    known = [each for each in about["fields"] if each["name"] != noun.get("of")]
    known = [each for each in known if not (is_listing and each["name"] == "limit")]
    places = [_identifier(each["name"]) + ": str" for each in known if each["in"] == "path"]
    others = [each for each in known if each["in"] != "path"]
    options = [f"{_identifier(each['name'])}: {_python_type(each)}" for each in _sorted(others)]
    options += ["limit: int | None = None"] if is_listing else []
    options += ["key: str | None = None"] if about.get("is_keyed") else []
    stars = ["*", *options] if options else []
    sent = [f'"{each["name"]}": {_identifier(each["name"])}' for each in about["fields"]
            if each in known]  # fmt: skip
    given = f"{{{', '.join(sent)}}}"
    kind = "def" if is_listing or not prefix else "async def"
    iterator = "AsyncIterator" if prefix else "Iterator"
    result = f"{iterator}[{answer}]" if is_listing else answer or "None"
    yield f"    {kind} {method}({', '.join(['self', *places, *stars])}) -> {result}:"
    yield from (f"    {line}" for line in docstring(_one_line(about["summary"])))
    wait = "await " if prefix and not is_listing else ""
    if is_listing:
        yield f'        return self._items({answer}, "{operation}", {given}, limit)'
    elif answer is None:
        yield f'        {wait}self._send("{operation}", {given})'
    else:
        key = ", key" if about.get("is_keyed") else ""
        yield f'        return {wait}self._call({answer}, "{operation}", {given}{key})'


def _sorted(fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(fields, key=lambda each: not each.get("required"))


def _python_type(field: Schema) -> str:
    python = field["python"].replace("list[", "Sequence[").replace("dict[", "Mapping[")
    return str(python) if field.get("required") else f"{python} = OMIT"


def _python_platform(prefix: str) -> str:
    lines = [f"class {prefix}Platform({prefix}Noun):", *docstring("Its nouns, unbound.")]
    for name, noun in NOUNS.items():
        if "of" not in noun:
            kind = f"{prefix}{name}"
            attribute = _snake(name)
            lines += ["", "    @property", f"    def {attribute}(self) -> {kind}:"]
            lines += [f"        return {kind}(self._client)"]
    return "\n".join(lines)


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _one_line(text: str) -> str:
    return f"{text}."


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


_TYPESCRIPT_HEADER = """/** The Platform's nouns, as `generate_operations.py` writes them. */

import { Noun, type Answer, type Fields, type Item, type Options } from "./noun.js";
"""


def render_typescript(operations: Mapping[str, Any]) -> str:
    keyed = sorted(each["path"] for each in operations.values() if each.get("is_keyed"))
    lines = "".join(f'  "{path}",\n' for path in keyed)
    blocks = [f"{_TYPESCRIPT_HEADER}\n/** Calls that make something. */"]
    blocks[0] += f"\nexport const KEYED: ReadonlySet<string> = new Set([\n{lines}]);\n"
    for name, noun in NOUNS.items():
        methods = [
            _typescript_method(operations[operation], noun, method, operation)
            for method, operation in noun["operations"].items()
        ]
        blocks.append(
            f"/** {noun['about']} */\nexport class {name} extends Noun {{\n"
            + "\n".join(methods)
            + "\n}\n"
        )
    unbound = [name for name, noun in NOUNS.items() if "of" not in noun]
    parts = "\n".join(
        f"  readonly {_camel(_snake(name))} = new {name}(this.api);" for name in unbound
    )
    blocks.append(
        f"/** Its nouns, unbound. */\nexport class Platform extends Noun {{\n{parts}\n}}\n"
    )
    return "\n".join(blocks)


def _typescript_method(about: Schema, noun: Schema, method: str, operation: str) -> str:
    paths = [each["name"] for each in about["fields"] if each["in"] == "path"]
    free = [each for each in paths if each != noun.get("of")]
    others = [each for each in about["fields"] if each["in"] != "path"]
    has_needed = any(each.get("required") for each in others)
    path = ", ".join("this.of" if each == noun.get("of") else _camel(each) for each in paths)
    call = f'"{operation}", "{about["method"]}", "{about["path"]}", [{path}]'
    arguments = [f"{_camel(each)}: string" for each in free]
    if others:
        default = "" if has_needed else " = {}"
        arguments.append(f'fields: Fields<"{operation}">{default}')
    given = ", fields" if others else ", {}"
    where = _places(others)
    head = f"  /** {_one_line(about['summary'])} */\n"
    if "listing" in about:
        kind = f'Item<"{operation}", "{about["listing"]}">'
        given_all = ", ".join([*arguments, "limit = Infinity"])
        return (
            f"{head}  {_camel(method)}({given_all}): AsyncIterable<{kind}> {{\n"
            f'    return this.items({call}{given}, "{about["listing"]}", limit);\n  }}'
        )
    options = ["options: Options = {}"] if about.get("is_keyed") else []
    last = f", {where}" + (", options" if options else "")
    return (
        f"{head}  {_camel(method)}({', '.join([*arguments, *options])}): "
        f'Promise<Answer<"{operation}">> {{\n    return this.call({call}{given}{last});\n  }}'
    )


def _places(fields: list[dict[str, Any]]) -> str:
    return '"query"' if fields and all(each["in"] == "query" for each in fields) else '"body"'


def rendered(document: Schema) -> dict[Path, str]:
    operations = described(document)
    return {
        TARGET: render(document),
        OPERATIONS: render_operations(operations),
        PYTHON: render_python(operations),
        TYPESCRIPT: render_typescript(operations),
    }


def main() -> None:
    import httpx

    [url] = sys.argv[1:]
    document = httpx.get(url, timeout=60).raise_for_status().json()
    for path, text in rendered(document).items():
        path.write_text(text)


if __name__ == "__main__":
    main()
