"""What people see: one value is whole, so that it can be used; cells of a list are cut."""

import pytest

from sandyard.entrypoints.cli import run
from sandyard.entrypoints.cli.showing import View, columns_of

LINK = f"https://prj-1.example.com/?token={'e' * 300}"
ROW = {"url": LINK, "expires_at": "2026-10-30T09:00:00Z"}


def test_one_row_is_whole_and_those_of_a_list_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    view = View("table")
    view.show_one(ROW, columns_of("url expires_at"))
    view.show_facts(ROW)
    assert capsys.readouterr().out.split().count(LINK) == 2
    view.show(lambda: [ROW, ROW], columns_of("url"))
    assert LINK[:99] + "…" in capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nonsense"], "No such command 'nonsense'. See `sandyard --help`."),
        (
            ["sandbox", "cp", "nosuchfile", "my-box:/workspace"],
            "nosuchfile: there is no such file. See `sandyard sandbox cp --help`.",
        ),
    ],
)
def test_a_wrong_command_line_is_told_in_sentences(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SANDYARD_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("SANDYARD_API_KEY", "sbk-none")
    assert run(words) == 2
    assert capsys.readouterr().err == f"sandyard: {told}\n"
