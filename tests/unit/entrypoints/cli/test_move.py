from pathlib import Path

import pytest

from sandyard.entrypoints.cli import run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "sqlite", "--to", "sqlite"], "--from and --to are the same engine"),
        (["--from", "mysql", "--to", "sqlite"], "must be sqlite, postgresql, dynamodb or a URL"),
        (
            ["--from", "sqlite", "--to", "dynamodb", "--part", "platform"],
            "platform: has no store on DynamoDB",
        ),
    ],
)
def test_a_wrong_command_line_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["move", *arguments, "--data-dir", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_postgresql_needs_its_url(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--from", "sqlite", "--to", "postgresql", "--data-dir", str(tmp_path)]
    assert run(["move", *arguments]) == 1
    assert "DATABASE_URL: must be set for postgresql" in capsys.readouterr().err


def test_a_data_dir_without_data_has_nothing_to_move(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--from", "sqlite", "--to", "postgresql://127.0.0.1:1/none"]
    assert run(["move", *arguments, "--data-dir", str(tmp_path)]) == 1
    assert "There is nothing to move." in capsys.readouterr().err
