"""`sandyard users`."""

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sandyard.entrypoints.cli.accounts.rows import USER_COLUMNS, users
from sandyard.entrypoints.cli.calls.row import Rows
from sandyard.entrypoints.cli.options import data_dir_option

if TYPE_CHECKING:
    from sandyard.platform.accounts.model import Account

_EPILOG = """\b
Examples:
  sandyard users create-admin --email me@example.com --username me.too
  pass show sandyard | sandyard users create-admin --email a@b.cd --username ann --password-stdin
"""
command = Rows(
    "users",
    users,
    columns=USER_COLUMNS,
    help="Create the Platform's first admin; manage users.",
    epilog=_EPILOG,
)


@command.command("create-admin", epilog=_EPILOG)
@click.option("--email", required=True, help="E-mail address; it is not verified.")
@click.option("--username", required=True, help="User name: 3 to 100 of A-Z a-z 0-9 . _ -")
@click.option("--password-stdin", is_flag=True, help="Read the password from stdin.")
@data_dir_option("Directory of the embedded databases; it may be in use.")
def create_admin(email: str, username: str, password_stdin: bool, data_dir: Path) -> None:
    """Create an admin account with a default project. It can log in at once."""
    from sandyard.platform.accounts.model import EMAIL, USERNAME

    if len(email) > 254 or not re.fullmatch(EMAIL, email):
        raise click.BadParameter("must be a plain e-mail address", param_hint="--email")
    if not 3 <= len(username) <= 100 or not re.fullmatch(USERNAME, username):
        raise click.BadParameter(
            "must be 3 to 100 characters of A-Z a-z 0-9 . _ -", param_hint="--username"
        )
    account, where = asyncio.run(
        _create(email, username, _password(password_stdin), data_dir.resolve())
    )
    click.echo(
        f"{account.username} <{account.email}> is an admin in {where}: account {account.account_id}"
    )


def _password(from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif not sys.stdin.isatty():
        raise click.UsageError("There is no terminal: send the password with --password-stdin.")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    if not 10 <= len(password) <= 128:
        raise click.UsageError("The password must have 10 to 128 characters.")
    return str(password)


async def _create(
    email: str, username: str, password: str, data_dir: Path
) -> tuple["Account", str]:
    from sandyard.bootstrap.addresses import sandbox_domain
    from sandyard.platform.wiring.part import PlatformPart
    from sandyard.settings import load_settings

    settings = load_settings()
    url_of = sandbox_domain(settings).url_of
    part = PlatformPart(settings, data_dir=data_dir, url_of=url_of)
    try:
        if part.embedded is not None:
            await part.embedded.upgrade()
        await part.check()
        account = await part.administration.create_admin(
            email=email, username=username, password=password
        )
        return account, str(data_dir) if part.embedded else "the database of DATABASE_URL"
    finally:
        await part.close()
