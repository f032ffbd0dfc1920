"""Sandboxes and what decisions about them rest on, for the unit tests."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from sandyard.kit.changes.events import Effect
from sandyard.kit.changes.transitions import Cause, Transition, state_of
from sandyard.kit.changes.verification import differences
from sandyard.kit.clock import utc_time
from sandyard.platform.quotas.model import QuotaRequest, Resources, check_quota
from sandyard.platform.sandboxes.model import ProjectState, Sandbox
from sandyard.platform.sandboxes.runs.model import NewIds
from sandyard.platform.templates.model import Template
from sandyard.platform.usage.model import PriceList

NOW = utc_time(1_800_000_000)
OWNER = "100000000000"
OTHER = "200000000000"
PRICES = PriceList(vcpu=Decimal("0.05"), memory_gb=Decimal("0.01"), storage_gb=Decimal("0.0001"))
IDS = NewIds("usg-1", "not-1", "usg-2")
PROJECT = ProjectState("prj-1", OWNER, is_archived=False)
ARCHIVED = replace(PROJECT, is_archived=True)
QUOTA = Resources(sandboxes=3, cpu=4, memory_gb=8, storage_gb=20)
FREE = check_quota(QuotaRequest(OWNER, 1, 1, QUOTA), Resources(0, 0, 0, 0))
SANDBOX = Sandbox(
    sandbox_id="sbx-1",
    name="box",
    description=None,
    template_id="tpl-1",
    owner_account_id=OWNER,
    project_id="prj-1",
    cpu_spec=1.0,
    memory_spec=1.0,
    max_running_seconds=3600,
    created_at=NOW - timedelta(days=1),
    updated_at=NOW - timedelta(days=1),
    sequence=5,
)
TEMPLATE = Template(
    template_id="tpl-1",
    name="static",
    description=None,
    category="web",
    language="html",
    min_cpu_required=1.0,
    min_memory_required=0.5,
    is_official=True,
    is_public=False,
    owner_account_id=None,
    repository_url="builtin:static",
    tags=None,
    created_at=NOW,
    updated_at=NOW,
)


def by(actor: str = f"account:{OWNER}", at: datetime = NOW) -> Cause:
    return Cause(actor, round(at.timestamp() * 1000))


def kinds(transitions: tuple[Transition[Any], ...] | None) -> list[str]:
    assert transitions is not None
    return [event.kind for each in transitions for event in each.events]


def assert_told(transition: Transition[Any]) -> None:
    """The one event of the transition tells exactly what became different."""
    [event] = transition.events
    before = {} if transition.before is None else state_of(transition.before)
    full = replace(event, effect=Effect.FULL, data=before | dict(event.data))
    assert differences(transition.result, [full]) == []
    assert event.sequence == (0 if transition.before is None else transition.before.sequence) + 1
