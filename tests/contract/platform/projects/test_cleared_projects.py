"""Which deleted projects still have something in other parts is found by an index of its own."""

from datetime import UTC, datetime

import pytest

from sandyard.kit.sql.database import Database
from sandyard.platform.events.entities import platform_transitions
from sandyard.platform.projects.sql import SqlProjectStore
from sandyard.platform.schema.tables import projects
from tests.support.platform.in_process import PlatformApi
from tests.support.storage.query_plans import plan_of, scanned, sent

NOW = datetime(2026, 11, 1, tzinfo=UTC)
MANY = 3000


@pytest.mark.parametrize("after", ["", "prj-1500"])
async def test_its_query_reads_no_project_that_is_there_or_cleared(
    api: PlatformApi, after: str
) -> None:
    ann = await api.account()
    database = api.part.database
    await add_projects(database, ann.account_id)
    store = SqlProjectStore(database, platform_transitions(database))
    with sent("cleared_at") as statements:
        found = await store.uncleared_projects(after=after, limit=500)
    assert found == [each for each in ("prj-0007", "prj-2007") if each > after]
    [statement] = statements
    plan = await plan_of(database, statement)
    assert "projects_uncleared" in plan, plan
    assert not scanned(plan)


async def add_projects(database: Database, account_id: str) -> None:
    """One third each: there, deleted and cleared, and of the others two that are not cleared."""
    waiting = (7, 2007)
    rows = [
        {
            "project_id": f"prj-{number:04}",
            "owner_account_id": account_id,
            "name": f"project {number}",
            "status": "active",
            "is_default": False,
            "created_at": NOW,
            "updated_at": NOW,
            "deleted_at": NOW if number % 2 or number in waiting else None,
            "cleared_at": NOW if number % 2 and number not in waiting else None,
            "sequence": 1,
        }
        for number in range(MANY)
    ]
    await database.write(lambda connection: connection.execute(projects.insert(), rows))
