"""`sandyard users` where nobody can type a password."""

from pathlib import Path

from click.testing import CliRunner

from sandyard.entrypoints.cli.accounts.users import command


def test_without_a_terminal_the_password_comes_from_stdin_or_the_error_says_so(
    tmp_path: Path,
) -> None:
    account = ("--email", "root@example.com", "--username", "root")
    arguments = ["create-admin", *account, "--data-dir", str(tmp_path)]
    refused = CliRunner().invoke(command, arguments, input="correct horse battery\n" * 2)
    assert refused.exit_code == 2
    assert "--password-stdin" in refused.output
    assert list(tmp_path.iterdir()) == [], "nothing was created"
