"""`sandyard completion`."""

import click

_EPILOG = """\b
Examples:
  eval "$(sandyard completion bash)"              # in ~/.bashrc
  sandyard completion zsh > ~/.zfunc/_sandyard
  sandyard completion fish > ~/.config/fish/completions/sandyard.fish
"""


@click.command("completion", epilog=_EPILOG)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes `sandyard` commands and options in a shell."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    assert completion is not None  # noqa: S101 - click has these three
    program = context.find_root().command
    click.echo(completion(program, {}, "sandyard", "_SANDYARD_COMPLETE").source())
