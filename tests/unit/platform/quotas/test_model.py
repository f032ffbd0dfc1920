"""Quotas: as many as the limit says, and a fact that small changes leave true."""

import pytest

from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.projects.errors import ProjectsLimitError
from sandyard.platform.quotas.model import CountQuota, ResourceKind
from sandyard.platform.templates.errors import TemplatesLimitError
from sandyard.platform.templates.model import create_template
from tests.unit.platform.templates.test_model import CAUSE, wanted

QUOTA = CountQuota(ResourceKind.TEMPLATES, "1" * 12, limit=3)


def test_the_limit_is_the_last_that_may_be_there() -> None:
    assert QUOTA.with_count(0) == QUOTA.with_count(2) == QUOTA
    QUOTA.with_count(2).require(ProjectsLimitError)
    for count in (3, 4):
        with pytest.raises(ProjectsLimitError) as refused:
            QUOTA.with_count(count).require(ProjectsLimitError)
        assert refused.value.details == {"limit": 3}


def test_an_official_template_is_on_nobodys_quota() -> None:
    admin, used_up = Principal("1" * 12, Role.ADMIN), QUOTA.with_count(3)
    with pytest.raises(TemplatesLimitError):
        create_template(wanted(), template_id="tpl-1", by=admin, quota=used_up, cause=CAUSE)
    official = wanted(is_official=True)
    made = create_template(official, template_id="tpl-1", by=admin, quota=used_up, cause=CAUSE)
    assert made.preconditions == ()
