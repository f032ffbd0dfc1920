"""The distribution: typed, and with no dependency beyond httpx."""

import ast
import sys
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[3] / "clients" / "python"
SOURCES = sorted((PACKAGE / "src" / "sandyard_client").glob("*.py"))


def imported(source: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_it_needs_httpx_alone() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    assert [each.partition(">")[0] for each in project["dependencies"]] == ["httpx"]
    others = set().union(*map(imported, SOURCES)) - sys.stdlib_module_names
    assert others == {"httpx", "sandyard_client"}


def test_the_client_is_marked_as_typed() -> None:
    assert (PACKAGE / "src" / "sandyard_client" / "py.typed").exists()
