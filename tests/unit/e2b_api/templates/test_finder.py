"""Names and tags of templates, as SDKs send them."""

from dataclasses import replace
from typing import Any, cast

import pytest

from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.e2b_api.templates.finder import TemplateFinder, TemplateName, archive_of, new_tag
from sandyard.kit.paging import Page
from sandyard.platform.templates.errors import TagUnknownError
from sandyard.platform.templates.model import DEFAULT_TAG, Template
from tests.unit.platform.sandboxes.examples import TEMPLATE

BUILT = replace(TEMPLATE, archives={DEFAULT_TAG: "arc-1", "v2": "arc-2"})


@pytest.mark.parametrize(
    ("text", "name", "tag"),
    [
        ("base", "base", None),
        ("base:v1", "base", "v1"),
        ("team/base:v1", "base", "v1"),
    ],
)
def test_a_name_may_have_a_team_and_a_tag(text: str, name: str, tag: str | None) -> None:
    assert TemplateName.of(text) == TemplateName.new(text) == TemplateName(name, tag)


@pytest.mark.parametrize("text", ["", "tpl-mine", "a b", "-a", "a:b c", "x" * 129, "a/", "base:"])
def test_invalid_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError):
        TemplateName.new(text)


def test_a_tag_may_be_sent_with_its_name() -> None:
    assert [new_tag("base:v1"), new_tag("v1")] == ["v1", "v1"]
    with pytest.raises(InvalidRequestError):
        new_tag("no tag")


def test_the_build_of_a_tag() -> None:
    assert archive_of(BUILT, "name") == "arc-1"
    assert archive_of(BUILT, "name:v2") == "arc-2"
    assert archive_of(BUILT, "name:latest") == "arc-1"
    assert archive_of(replace(BUILT, archives={"latest": "arc-3"}), "name:latest") == "arc-3"
    assert archive_of(replace(TEMPLATE, archives=None), "name") is None
    with pytest.raises(TagUnknownError):
        archive_of(BUILT, "name:no-such")


class _Visible:
    """The templates that an account sees, in this order."""

    def __init__(self, *templates: Template) -> None:
        self._templates = templates

    async def list(self, *_: Any) -> Page[Template]:
        return Page(self._templates, None)


async def test_an_image_is_an_official_template_and_never_a_build_of_that_name() -> None:
    official = replace(TEMPLATE, name="base", is_official=True, archives=None)
    published = replace(BUILT, name="base", is_official=False, is_public=True)
    rebuilt = replace(official, archives={DEFAULT_TAG: "arc-3"})
    visible = _Visible(published, rebuilt, official)
    finder = TemplateFinder(cast("Any", visible), cast("Any", None))
    assert await finder.find_official("base", account_id="acc-1") is official
    none = TemplateFinder(cast("Any", _Visible(published, rebuilt)), cast("Any", None))
    assert await none.find_official("base", account_id="acc-1") is None
