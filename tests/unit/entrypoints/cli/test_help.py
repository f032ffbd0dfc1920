"""Every command has help with examples, and help loads nothing that is not needed for it."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from sandyard.entrypoints.cli import sandyard

HEAVY = {"httpx", "rich", "fastapi", "sqlalchemy", "pydantic", "sandyard_client", "websockets"}


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [*commands(sandyard)], ids=" ".join)
def test_every_command_has_help_with_examples(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    sandyard.main([*path, "--help"], prog_name="sandyard", standalone_mode=False)
    shown = capsys.readouterr().out
    assert "Examples:" in shown
    assert "sandyard " in shown.partition("Examples:")[2]


def test_help_loads_no_library_that_it_does_not_need() -> None:
    code = (
        "import sys\n"
        "from sandyard.entrypoints.cli import run\n"
        "run(['--help'])\n"
        f"print(sorted(set(sys.modules) & {HEAVY!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
