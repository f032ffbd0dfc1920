"""The `sandyard` command. Commands import what they need when they run, so `--help` is quick."""

import logging
import os
import sys
from typing import ClassVar, NoReturn

import click

from sandyard import __version__
from sandyard.kit.errors import SandyardError

EXAMPLES = """\b
Examples:
  sandyard serve
  sandyard jobs run sync
  sandyard csp-sim --count 100 --error-rate 0.2
  sandyard devices simulate --count 200 --lost-answers 0.2
"""


class _Commands(click.Group):
    """Looks a command up in the module of its name."""

    _MODULES: ClassVar[dict[str, str]] = {
        "serve": "serve",
        "jobs": "jobs",
        "csp-sim": "csp_sim",
        "db": "db",
        "tables": "tables",
        "pool": "pool",
        "verify": "verify",
        "backup": "backup",
        "restore": "restore",
        "events": "events",
        "devices": "devices",
        "users": "users",
        "previews": "previews",
    }

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self._MODULES)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        module = self._MODULES.get(name)
        if module is None:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"sandyard.entrypoints.cli.{module}").command
        return command


@click.command(cls=_Commands, epilog=EXAMPLES, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="sandyard")
def sandyard() -> None:
    """One control plane for short-lived environments."""


def main() -> None:
    """Exit with 0, 1 for what went wrong, 2 for a wrong command line; a line on stderr says why."""
    _exit(_run())


def _run() -> int:
    try:
        sandyard.main(standalone_mode=False)
    except click.UsageError as error:
        error.show()
        return 2
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return 1
    except SandyardError as error:
        for line in error.message.splitlines():
            click.echo(f"sandyard: {line}", err=True)
        return 1
    except OSError as error:
        click.echo(f"sandyard: {error}", err=True)
        return 1
    return 0


def _exit(code: int) -> NoReturn:
    """Granian's threads may outlive its server, and abort a process whose interpreter has ended."""
    if "granian" not in sys.modules:
        sys.exit(code)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
