"""Links in the documentation lead somewhere, and to the decision whose number they show."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("clients/*/*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def links(page: Path) -> Iterator[tuple[str, str]]:
    for text, target in _LINK.findall(page.read_text()):
        if "://" not in target and not target.startswith("mailto:"):
            yield text, target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for text, target in links(page):
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"[{text}]({target})"
        assert not anchor or anchor in anchors(linked), f"[{text}]({target})"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_number_leads_to_the_decision_of_that_number(page: Path) -> None:
    numbered = [(text, target) for text, target in links(page) if re.fullmatch(r"\d{4}", text)]
    assert all(Path(target).name.startswith(f"{text}-") for text, target in numbered), numbered


def test_the_list_of_decisions_has_each_once() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = [target for _, target in links(folder / "README.md")]
    assert sorted(listed) == sorted(each.name for each in folder.glob("0*.md"))
    assert len({each[:4] for each in listed}) == len(listed), "two with one number"


def test_the_files_that_the_architecture_names_are_there() -> None:
    named = re.findall(r"`([\w*/]+(?:/|\.py))`", (ROOT / "docs" / "architecture.md").read_text())
    assert "broker/pool/model.py" in named
    client = ROOT / "clients" / "python" / "src" / "sandyard_client"
    parts = [client, ROOT / "src" / "sandyard", *(ROOT / "src" / "sandyard").iterdir()]
    others = [each for each in named if not (ROOT / each).exists()]
    missing = [each for each in others if not any([*part.rglob(each)] for part in parts)]
    assert not missing
