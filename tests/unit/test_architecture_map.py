"""The table "Where to find it" of docs/architecture.md names files and symbols that exist.

Format of a row: `| question | reference |`. A reference is a file in backticks, and behind it in
parentheses the symbols to look at:

    | what happens to an expired lease | `broker/pool/model.py` (`decide_expiry`) |
    | what a sandbox can reach | `runtime/network_model.py` (`EgressRules`, `Policy.refusal`) |

A path is below `src/sandyard`, or else below the repository. A symbol is a function, class or
constant of the file, or `Class.member`. A row may have several references, with words between them.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_ROWS = 20
"""The rooms are the index."""
_REFERENCE = re.compile(r"`([\w./*-]+\.py)`(?: \(((?:`[\w.]+`(?:, )?)+))?")


def rows() -> dict[str, str]:
    """The references by question."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.partition("\n## Where to find it\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return {question.strip(): answer for _, question, answer, _ in (x.split("|") for x in lines)}


def references(answer: str) -> Iterator[tuple[str, list[str]]]:
    for path, symbols in _REFERENCE.findall(answer):
        if "/" in path:
            yield path, re.findall(r"`([\w.]+)`", symbols)


def find_file(path: str) -> Path | None:
    found = (ROOT / "src" / "sandyard" / path, ROOT / path)
    return next((each for each in found if each.is_file()), None)


def symbols_of(file: Path) -> set[str]:
    """Every name that the file defines, and `Class.member` of its classes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        found.update(_names(node))
        if isinstance(node, ast.ClassDef):
            found.update(f"{node.name}.{name}" for each in node.body for name in _names(each))
    return found


def _names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.name
        case ast.Assign():
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def test_the_table_is_short() -> None:
    assert 0 < len(rows()) <= MOST_ROWS


@pytest.mark.parametrize("question", rows())
def test_a_row_names_files_and_symbols_that_exist(question: str) -> None:
    named = list(references(rows()[question]))
    assert named, "it names no file"
    for path, symbols in named:
        file = find_file(path)
        assert file is not None, f"{path} does not exist"
        missing = set(symbols) - symbols_of(file)
        assert not missing, f"{path} has no {missing}"
