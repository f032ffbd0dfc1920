"""The text of `sandyard_client/models.py`, from a server's OpenAPI document."""

import json
import keyword
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]

SCHEMAS = "#/components/schemas/"
TARGET = Path(__file__).parent / "src" / "sandyard_client" / "models.py"
WANTED = (
    "LeaseAnswer",
    "MarkAnswer",
    "TicketAnswer",
    "PoolSandboxAnswer",
    "PoolStatsAnswer",
    "EventAnswer",
    "SandboxAnswer",
    "TemplateAnswer",
    "CommandAnswer",
    "FileAnswer",
    "AccessTokenAnswer",
    "UsageAnswer",
    "RegisteredAnswer",
    "DeviceAnswer",
    "ReadingAnswer",
    "IntakeAnswer",
    "AccountAnswer",
    "ApiKeyAnswer",
    "BillAnswer",
    "BillingSumsAnswer",
    "ImageAnswer",
    "MonthToDateAnswer",
    "NewApiKeyAnswer",
    "PortAnswer",
    "PreviewLookAnswer",
    "VersionsAnswer",
    "ComparisonAnswer",
    "PreviewStatusAnswer",
    "PreviewSyncAnswer",
    "ProjectAnswer",
    "ProjectFilesAnswer",
    "ProjectVersionAnswer",
    "PublicationAnswer",
    "QuotasAnswer",
    "SshAddressAnswer",
    "SshKeyAnswer",
    "VariableAnswer",
    "VolumeAnswer",
)
"""What the face of the client answers; what these refer to is written too."""

_HEADER = '''"""The API's answers by its OpenAPI document, as `generate_models.py` writes them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
'''
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_WIDTH = 100


def render(document: Schema) -> str:
    """The text of the module."""
    schemas: dict[str, Schema] = document["components"]["schemas"]
    names = _with_referred(schemas, WANTED)
    enums = sorted(name for name in names if "enum" in schemas[name])
    classes = sorted(name for name in names if "enum" not in schemas[name])
    blocks = [_HEADER, *(_alias(name, schemas[name]) for name in enums)]
    blocks += [f"\n\n{_model(name, schemas[name])}" for name in classes]
    return "".join(blocks)


def _with_referred(schemas: Mapping[str, Schema], wanted: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_references(schemas[name]))
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"].rpartition("/")[2]
        for key, value in schema.items():
            if key not in ("examples", "example"):
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _alias(name: str, schema: Schema) -> str:
    return f"\n{name} = {_literal(schema['enum'], indent='')}\n"


def _model(name: str, schema: Schema) -> str:
    required = set(schema.get("required", ()))
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:"]
    if description := schema.get("description"):
        lines += [*docstring(description), ""]
    for field, about in schema["properties"].items():
        default = "" if field in required else _default(about)
        lines.append(f"    {_identifier(field)}: {annotation(about)}{default}")
        if description := about.get("description"):
            lines += docstring(description)
    return "\n".join(lines) + "\n"


def docstring(text: str) -> list[str]:
    whole = f'    """{text}"""'
    if len(whole) <= _WIDTH:
        return [whole]
    lines = textwrap.wrap(f'"""{text}', _WIDTH - 4)
    return [*(f"    {line}" for line in lines[:-1]), f'    {lines[-1]}"""']


def _default(about: Schema) -> str:
    if "default" in about:
        default = about["default"]
        return f" = {json.dumps(default) if isinstance(default, str) else repr(default)}"
    return " | None = None" if "None" not in annotation(about) else " = None"


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def annotation(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(annotation(each) for each in schema["anyOf"])
    if "enum" in schema:
        return _literal(schema["enum"])
    if "const" in schema:
        return _literal([schema["const"]])
    match schema.get("type"):
        case "array":
            return f"list[{annotation(schema['items'])}]"
        case "object":
            values = schema.get("additionalProperties")
            return (
                f"dict[str, {annotation(values) if isinstance(values, dict) and values else 'Any'}]"
            )
        case "string" if schema.get("format") == "date-time":
            return "datetime"
        case str(kind):
            return _PLAIN[kind]
    return "Any"


def _literal(values: list[Any], *, indent: str = "    ") -> str:
    line = ", ".join(json.dumps(value) for value in values)
    if len(line) <= 60:
        return f"Literal[{line}]"
    body = "".join(f"{indent}    {json.dumps(value)},\n" for value in values)
    return f"Literal[\n{body}{indent}]"
