"""Every decision about projects, at its edges."""

from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.platform.projects.errors import (
    DefaultProjectError,
    ProjectArchivedError,
    ProjectInUseError,
)
from sandyard.platform.projects.model import (
    Project,
    ProjectContents,
    ProjectStatus,
    archive_project,
    create_default_project,
    create_project,
    delete_project,
    make_default,
    unarchive_project,
    update_project,
)
from sandyard.platform.quotas.model import CountQuota, ResourceKind

CAUSE = Cause("account:111111111111", 1_800_000_000_000)
LATER = replace(CAUSE, at_ms=CAUSE.at_ms + 1000)
EMPTY, FULL = ProjectContents("prj-1"), ProjectContents("prj-1", has_sandboxes=True)
QUOTA = CountQuota(ResourceKind.PROJECTS, "1" * 12, limit=2)
ARCHIVED: dict[str, Any] = {"status": ProjectStatus.ARCHIVED}


def project(**changes: Any) -> Project:
    made = create_project(
        project_id="prj-1",
        account_id="1" * 12,
        name="one",
        description=None,
        quota=QUOTA,
        cause=CAUSE,
    )
    assert made.preconditions == (QUOTA,)
    return replace(made.result, **changes)


def test_a_new_project_is_active_and_not_the_default() -> None:
    found = project()
    assert (found.status, found.is_default) == (ProjectStatus.ACTIVE, False)
    first = create_default_project(project_id="prj-2", account_id="1" * 12, cause=CAUSE)
    assert (first.result.name, first.result.is_default) == ("Default", True)
    assert first.events[0].kind == "project.created"
    assert first.events[0].account_id == "1" * 12


def test_an_archived_project_is_read_only() -> None:
    for decide in (
        lambda: update_project(project(**ARCHIVED), {"name": "two"}, LATER),
        lambda: update_project(project(**ARCHIVED), {}, LATER),
        lambda: make_default(project(**ARCHIVED), None, LATER),
    ):
        with pytest.raises(ProjectArchivedError):
            decide()


def test_an_update_holds_what_is_different() -> None:
    assert update_project(project(), {"name": "one"}, LATER) is None
    renamed = update_project(project(), {"name": "two"}, LATER)
    assert renamed is not None
    assert renamed.events[0].kind == "project.updated"
    assert set(renamed.events[0].data) == {"name", "updated_at"}


def test_archiving_is_done_once_and_taken_back_once() -> None:
    archived = archive_project(project(), LATER)
    assert archived is not None
    assert archived.result.is_archived
    assert archived.events[0].kind == "project.archived"
    assert archive_project(archived.result, LATER) is None
    back = unarchive_project(archived.result, LATER)
    assert back is not None
    assert (back.result.status, back.events[0].kind) == ("active", "project.unarchived")
    assert unarchive_project(back.result, LATER) is None


def test_the_default_project_is_neither_archived_nor_deleted() -> None:
    default = project(is_default=True)
    with pytest.raises(DefaultProjectError):
        archive_project(default, LATER)
    with pytest.raises(DefaultProjectError):
        delete_project(default, EMPTY, LATER)


def test_the_former_default_gives_its_part_up_first() -> None:
    former = project(project_id="prj-0", is_default=True)
    first, second = make_default(project(), former, LATER)
    assert (first.result.project_id, first.result.is_default) == ("prj-0", False)
    assert (second.result.project_id, second.result.is_default) == ("prj-1", True)
    assert first.events[0].kind == "project.updated"
    assert first.events[0].reason == "prj-1 was made the default"
    assert second.events[0].kind == "project.made_default"
    assert make_default(former, former, LATER) == []
    [alone] = make_default(project(), None, LATER)
    assert alone.result.is_default


def test_a_project_with_sandboxes_stays_and_the_fact_is_given() -> None:
    with pytest.raises(ProjectInUseError):
        delete_project(project(), FULL, LATER)
    for found in (project(), project(**ARCHIVED)):
        deleted = delete_project(found, EMPTY, LATER)
        assert deleted.result.deleted_at == LATER.at
        assert (deleted.preconditions, deleted.events[0].kind) == ((EMPTY,), "project.deleted")
