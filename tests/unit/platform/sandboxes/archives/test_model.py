"""What the archives of a template cost its owner, and until when."""

from dataclasses import replace
from datetime import timedelta

import pytest

from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.sandboxes.archives.model import count_archives
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import Usage
from tests.unit.platform.sandboxes.examples import NOW, OWNER, PRICES, TEMPLATE, by

HOUR = timedelta(hours=1)
ARCHIVED = replace(
    TEMPLATE,
    is_official=False,
    owner_account_id=OWNER,
    archives={"default": "archive-1"},
    archive_bytes=2 * GIGABYTE,
    archived_by="sbx-1",
    storage_counted_until=NOW - HOUR,
    sequence=3,
)


def counted(template: Template) -> tuple[Template, Usage | None]:
    made = count_archives(template, until=NOW, usage_id="usg-1", prices=PRICES, cause=by())
    assert made is not None
    return made[0].result, made[1].result if len(made) > 1 else None


def test_the_owner_pays_for_the_time_since_they_were_last_counted() -> None:
    template, usage = counted(ARCHIVED)
    assert template.storage_counted_until == NOW
    assert usage is not None
    assert (usage.sandbox_id, usage.user_account_id) == ("sbx-1", OWNER)
    assert (usage.start_time, usage.end_time) == (NOW - HOUR, NOW)


def test_a_deleted_template_costs_until_it_was_deleted() -> None:
    deleted = replace(ARCHIVED, deleted_at=NOW - HOUR / 2)
    template, usage = counted(deleted)
    assert template.storage_counted_until is None, "nothing is counted afterwards"
    assert usage is not None
    assert usage.end_time == NOW - HOUR / 2


@pytest.mark.parametrize(
    "template",
    [
        TEMPLATE,
        replace(ARCHIVED, storage_counted_until=NOW),
        replace(ARCHIVED, owner_account_id=None),
        replace(ARCHIVED, archived_by=None),
    ],
    ids=["no archives", "already counted", "official", "made by no sandbox"],
)
def test_otherwise_there_is_nothing_to_count(template: Template) -> None:
    made = count_archives(template, until=NOW, usage_id="usg-1", prices=PRICES, cause=by())
    assert made is None
