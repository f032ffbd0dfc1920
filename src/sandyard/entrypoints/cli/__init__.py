"""The `sandyard` command. Commands import lazily, so that `--help` is fast."""

import logging
import os
import sys
from collections.abc import Sequence
from typing import ClassVar, NoReturn

import click

from sandyard import __version__
from sandyard.entrypoints.cli.exit_codes import CallFailedError
from sandyard.kit.errors import SandyardError, with_reason

EXAMPLES = """\b
Examples:
  sandyard serve
  sandyard demo
  sandyard login --url https://sandyard.example.com
  sandyard lease exec --wait 60 -- pytest tests/lab
  sandyard sandbox shell my-box
  sandyard jobs run sync
  sandyard csp-sim --count 100 --error-rate 0.2
  sandyard gameday task-killed
  sandyard devices simulate --count 200 --lost-answers 0.2
"""


class _Commands(click.Group):
    """Loads a command from its module."""

    _MODULES: ClassVar[dict[str, str]] = {
        "serve": "server.serve",
        "demo": "tools.demo",
        "jobs": "server.jobs",
        "egress-proxy": "server.egress_proxy",
        "csp-sim": "tools.csp_sim",
        "gameday": "tools.gameday",
        "settings": "server.settings",
        "db": "server.schemas:db",
        "tables": "server.schemas:tables",
        "login": "accounts.login",
        "lease": "leases.lease",
        "sandbox": "sandboxes.sandbox",
        "image": "sandboxes.image",
        "template": "sandboxes.template",
        "volume": "sandboxes.rows:volumes",
        "ssh-key": "sandboxes.ssh:keys",
        "ssh-config": "sandboxes.ssh:config",
        "device": "telemetry.device",
        "account": "accounts.rows:account",
        "project": "accounts.projects:project",
        "preview": "accounts.projects:preview",
        "key": "accounts.rows:key",
        "bills": "accounts.rows:bills",
        "notifications": "accounts.rows:notifications",
        "usage": "accounts.usage",
        "mcp": "accounts.mcp",
        "completion": "completion",
        "pool": "broker.pool",
        "reservations": "broker.rows:reservations",
        "queue": "broker.rows:queue",
        "webhooks": "broker.rows:webhooks",
        "clients": "broker.rows:clients",
        "provider": "broker.provider",
        "verify": "server.verify",
        "move": "server.move",
        "backup": "server.backup:backup",
        "restore": "server.backup:restore",
        "events": "events",
        "devices": "telemetry.devices",
        "users": "accounts.users",
        "environments": "server.environments",
        "previews": "server.previews",
    }

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(self._MODULES)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        module = self._MODULES.get(name) or self._MODULES.get(name.removesuffix("s"))
        if module is None:
            return None
        from importlib import import_module

        path, _, attribute = module.partition(":")
        loaded = import_module(f"sandyard.entrypoints.cli.{path}")
        command: click.Command = getattr(loaded, attribute or "command")
        return command


@click.command(
    cls=_Commands,
    epilog=EXAMPLES,
    context_settings={"max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, prog_name="sandyard")
def sandyard() -> None:
    """A control plane for short-lived environments."""


def main() -> None:
    """Exit with 0, 1 for a failure, 2 for a wrong command line, and further codes for scripts where
    a server was called (docs/cli.md); a line on stderr gives the reason."""
    _exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code; `arguments` default to the process's own."""
    try:
        code = sandyard.main(arguments, prog_name="sandyard", standalone_mode=False)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "sandyard"
        said = error.format_message().rstrip(".")
        click.echo(f"sandyard: {said}. See `{path} --help`.", err=True)
        return 2
    except click.Abort:
        return 130
    except CallFailedError as error:
        error.show()
        return error.code
    except click.ClickException as error:
        error.show()
        return 1
    except KeyboardInterrupt:
        return 130
    except SandyardError as error:
        for line in with_reason(error).splitlines():
            click.echo(f"sandyard: {line}", err=True)
        return 1
    except OSError as error:
        click.echo(f"sandyard: {error}", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _exit(code: int) -> NoReturn:
    """Granian's threads may outlive its server, and would abort a process whose interpreter has
    ended."""
    if "granian" not in sys.modules:
        sys.exit(code)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
