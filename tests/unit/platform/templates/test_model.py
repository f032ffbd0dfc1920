"""Every decision about templates, at its edges, and who sees which."""

from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.templates.errors import (
    EnvironmentUnknownError,
    OfficialTemplateError,
    TemplateReadOnlyError,
)
from sandyard.platform.templates.model import (
    BUILTIN,
    NewTemplate,
    Template,
    Visibility,
    create_official_template,
    create_template,
    delete_template,
    official_templates,
    require_environment,
    require_repository_url,
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


QUOTA = CountQuota(ResourceKind.TEMPLATES, ANN.account_id, limit=2)


def template(by: Principal = ANN, **changes: Any) -> Template:
    made = create_template(wanted(**changes), template_id="tpl-1", by=by, quota=QUOTA, cause=CAUSE)
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


LONGEST_HOST = "a" * 253


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/x.git",
        "https://a/b",
        "https://a/b/",
        "https://a/b/c/d",
        "https://Example.COM/A-b_c.d~e+f,g=h",
        f"https://{LONGEST_HOST}/x",
        "https://127.0.0.1/x",
        "https://example.com:1/x",
        "https://example.com:65535/x",
        *(f"builtin:{name}" for name in BUILTIN),
    ],
)
def test_a_plain_address_is_taken_as_it_is(url: str) -> None:
    assert require_repository_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https:///x",
        "https://example.com",
        "https://example.com/",
        "https://example.com//x",
        "https://example.com/a//b",
        "http://example.com/x",
        "HTTPS://example.com/x",
        "git://example.com/x",
        "ssh://git@example.com/x",
        "git@example.com:x.git",
        "file:///etc",
        "ext::sh -c id",
        "https://user@example.com/x",
        "https://user:pass@example.com/x",
        "https://example.com/x?token=1",
        "https://example.com/x#main",
        "https://example.com/%2e",
        "https://example.com/a b",
        "https://example.com/x\n",
        "\nhttps://example.com/x",
        "https://exämple.com/x",
        "https://example.com/ä",
        "https://-example.com/x",
        "https://example.com-/x",
        f"https://{LONGEST_HOST}a/x",
        "https://[::1]/x",
        "https://example.com:/x",
        "https://example.com:65536/x",
        "https://example.com:123456/x",
        "builtin:",
        "builtin:none",
        "builtin:static/",
        "builtin:STATIC",
        "Builtin:static",
    ],
)
def test_any_other_is_refused_with_a_reason(url: str) -> None:
    with pytest.raises(ValueError, match=r"must be|Port"):
        require_repository_url(url)


def test_what_ships_with_the_product_may_be_used() -> None:
    official = official_templates()
    assert [each.name for each in official] == list(BUILTIN)
    for each in official:
        assert require_repository_url(each.repository_url) == f"builtin:{each.name}"
        assert each.is_official


@pytest.mark.parametrize(
    ("template", "principal", "may"),
    [
        (PRIVATE, ANN, True),
        (PRIVATE, BOB, False),
        (PRIVATE, ADMIN, False),
        (PUBLIC, ANN, True),
        (PUBLIC, BOB, False),
        (PUBLIC, ADMIN, True),
        (OFFICIAL, ANN, False),
        (OFFICIAL, ADMIN, True),
    ],
)
def test_its_owner_changes_it_and_admins_what_everyone_sees(
    template: Template, principal: Principal, may: bool
) -> None:
    if may:
        template.require_changeable_by(principal)
        return
    with pytest.raises(TemplateReadOnlyError):
        template.require_changeable_by(principal)


def test_a_secret_is_for_the_repository_of_an_own_or_official_template_alone() -> None:
    own = create_template(
        wanted(repository_secret="TOKEN", is_public=True),
        template_id="tpl-1",
        by=ANN,
        quota=QUOTA,
        cause=CAUSE,
    ).result
    assert own.secret_for(ANN.account_id) == "TOKEN"
    assert own.secret_for(BOB.account_id) is None
    official = replace(own, is_official=True, owner_account_id=None)
    assert official.secret_for(BOB.account_id) == "TOKEN"


def test_an_environment_must_be_known() -> None:
    require_environment(None, set())
    require_environment("debian", {"debian"})
    with pytest.raises(EnvironmentUnknownError):
        require_environment("debian", {"other"})
