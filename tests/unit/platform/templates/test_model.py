"""Every decision about templates, at its edges, and who sees which."""

from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit.transitions import Cause
from sandyard.platform.budgets import Budget, Noun
from sandyard.platform.principal import Principal, Role
from sandyard.platform.templates.errors import OfficialTemplateError, TemplateReadOnlyError
from sandyard.platform.templates.model import (
    NewTemplate,
    Template,
    Visibility,
    create_official_template,
    create_template,
    delete_template,
    official_templates,
    update_template,
)

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 1000)
ANN, BOB = Principal("1" * 12, Role.USER), Principal("2" * 12, Role.USER)
ADMIN = Principal("3" * 12, Role.ADMIN)


def wanted(**changes: Any) -> NewTemplate:
    template = NewTemplate(
        name="mine",
        description=None,
        category="web",
        language="go",
        min_cpu_required=1,
        min_memory_required=0.5,
        is_official=False,
        is_public=False,
        repository_url="https://example.com/a/b",
        tags=["a"],
    )
    return replace(template, **changes)


BUDGET = Budget(Noun.TEMPLATES, ANN.account_id, limit=2)


def template(by: Principal = ANN, **changes: Any) -> Template:
    made = create_template(
        wanted(**changes), template_id="tpl-1", by=by, budget=BUDGET, cause=CAUSE
    )
    assert made.events[0].kind == "template.created"
    return made.result


PRIVATE, PUBLIC = template(), template(is_public=True)
OFFICIAL = template(ADMIN, is_official=True)


def test_only_admins_make_official_templates_which_belong_to_nobody() -> None:
    with pytest.raises(OfficialTemplateError):
        template(ANN, is_official=True)
    assert (PRIVATE.owner_account_id, OFFICIAL.owner_account_id) == (ANN.account_id, None)
    for each in official_templates():
        made = create_official_template(each, template_id="tpl-2", cause=CAUSE)
        assert made.result.owner_account_id is made.events[0].account_id is None


@pytest.mark.parametrize(
    ("found", "visibility", "seen_by", "changed_by"),
    [
        pytest.param(PRIVATE, Visibility.PRIVATE, [ANN], [ANN], id="private"),
        pytest.param(PUBLIC, Visibility.PUBLIC, [ANN, BOB, ADMIN], [ANN, ADMIN], id="public"),
        pytest.param(OFFICIAL, Visibility.OFFICIAL, [ANN, BOB, ADMIN], [ADMIN], id="official"),
        pytest.param(
            replace(OFFICIAL, is_public=True),
            Visibility.OFFICIAL,
            [ANN, BOB, ADMIN],
            [ADMIN],
            id="official and public",
        ),
    ],
)
def test_who_sees_and_changes_which(
    found: Template, visibility: Visibility, seen_by: list[Principal], changed_by: list[Principal]
) -> None:
    assert found.visibility is visibility
    for who in (ANN, BOB, ADMIN):
        assert found.is_visible_to(who.account_id) is (who in seen_by)
        if who in changed_by:
            changed = update_template(found, {"language": "c"}, by=who, cause=LATER)
            assert changed is not None
            assert set(changed.events[0].data) == {"language", "updated_at"}
            assert changed.events[0].kind == "template.updated"
            deleted = delete_template(found, by=who, cause=LATER)
            assert deleted.result.deleted_at == LATER.at
            assert deleted.events[0].kind == "template.deleted"
            continue
        with pytest.raises(TemplateReadOnlyError):
            update_template(found, {"language": "c"}, by=who, cause=LATER)
        with pytest.raises(TemplateReadOnlyError):
            delete_template(found, by=who, cause=LATER)


def test_an_update_to_what_is_there_changes_nothing() -> None:
    assert update_template(PRIVATE, {}, by=ANN, cause=LATER) is None
    assert update_template(PRIVATE, {"tags": ["a"]}, by=ANN, cause=LATER) is None
