from pathlib import Path

from tests.support.documents.error_page import error_page


def test_the_page_of_errors_is_the_codes() -> None:
    """After a change: `python -m tests.support.documents.error_page > docs/errors.md`."""
    page = Path(__file__).parents[2] / "docs/errors.md"
    assert page.read_text() == error_page()


def test_each_code_stands_there_once() -> None:
    codes = [
        line.split("`")[1]
        for line in error_page().splitlines()
        if line.startswith("| ") and "`" in line
    ]
    assert len(codes) == len(set(codes)) > 80
