"""What an owner may do with a sandbox, at the edges."""

from dataclasses import replace
from typing import Any

import pytest

from sandyard.kit.errors import SandyardError
from sandyard.platform.quotas.model import (
    CountQuota,
    QuotaRequest,
    ResourceKind,
    Resources,
    check_quota,
)
from sandyard.platform.sandboxes.errors import (
    ProjectNotUsableError,
    ProjectReadOnlyError,
    QuotaExceededError,
    ResourcesTooSmallError,
    SandboxBusyError,
    SandboxesLimitError,
    SandboxRecycledError,
    TemplateNotUsableError,
)
from sandyard.platform.sandboxes.model import (
    Changes,
    NewSandbox,
    StartFacts,
    Status,
    approve_start,
    create_sandbox,
    update_sandbox,
)
from tests.unit.platform.sandboxes.examples import (
    ARCHIVED,
    FREE,
    NOW,
    OTHER,
    OWNER,
    PROJECT,
    QUOTA,
    SANDBOX,
    TEMPLATE,
    assert_told,
    by,
)

NEW = NewSandbox("box", "tpl-1", None, None, 1.0, 0.5, 60)
PRIVATE = replace(TEMPLATE, is_official=False, owner_account_id=OTHER)
COUNT_QUOTA = CountQuota(ResourceKind.SANDBOXES, OWNER, limit=2)
ACTIVE = [Status.STARTING, Status.RUNNING]
INACTIVE = [Status.CREATED, Status.STOPPED, Status.TIMEOUT]
UNUSABLE = [
    (None, PROJECT, TemplateNotUsableError),
    (PRIVATE, PROJECT, TemplateNotUsableError),
    (TEMPLATE, None, ProjectNotUsableError),
    (TEMPLATE, ARCHIVED, ProjectReadOnlyError),
]


def create(
    new: NewSandbox = NEW,
    template: Any = TEMPLATE,
    project: Any = PROJECT,
    quota: CountQuota = COUNT_QUOTA,
) -> Any:
    return create_sandbox(
        new,
        sandbox_id="sbx-1",
        account_id=OWNER,
        template=template,
        project=project,
        quota=quota,
        cause=by(),
    )


def test_no_more_than_the_account_may_have() -> None:
    assert COUNT_QUOTA in create().preconditions
    with pytest.raises(SandboxesLimitError):
        create(quota=COUNT_QUOTA.with_count(2))


def update(sandbox: Any, values: Any, template: Any = TEMPLATE, project: Any = PROJECT) -> Any:
    return update_sandbox(sandbox, Changes(values), template=template, project=project, cause=by())


def start(sandbox: Any, template: Any = TEMPLATE, project: Any = PROJECT, quota: Any = FREE) -> Any:
    approved = approve_start(StartFacts(sandbox, template, project), quota)
    return approved and approved.begin(node="n", cause=by())


def test_a_new_one_is_created_in_the_project_that_was_found() -> None:
    transition = create()
    made = transition.result
    assert (made.status, made.attempt, made.project_id) == (Status.CREATED, 0, "prj-1")
    assert made.created_at == made.updated_at == NOW
    assert transition.preconditions == (PROJECT, COUNT_QUOTA)
    assert transition.events[0].kind == "sandbox.created"
    assert transition.events[0].account_id == OWNER
    assert_told(transition)


@pytest.mark.parametrize(("template", "project", "error"), UNUSABLE)
def test_a_new_one_needs_a_template_and_a_project(
    template: Any, project: Any, error: type[SandyardError]
) -> None:
    with pytest.raises(error):
        create(template=template, project=project)


@pytest.mark.parametrize("template", [replace(PRIVATE, is_public=True), TEMPLATE])
def test_a_template_that_is_public_or_official_is_everybodys(template: Any) -> None:
    assert create(template=template).result.template_id == "tpl-1"


def test_it_has_at_least_what_its_template_needs() -> None:
    template = replace(TEMPLATE, min_cpu_required=2.0, min_memory_required=4.0)
    enough = replace(NEW, cpu_spec=2.0, memory_spec=4.0)
    assert create(enough, template).result.cpu_spec == 2.0
    for less in (replace(enough, cpu_spec=1.99), replace(enough, memory_spec=3.99)):
        with pytest.raises(ResourcesTooSmallError):
            create(less, template)
    with pytest.raises(ResourcesTooSmallError):
        update(SANDBOX, {"cpu_spec": 1.5}, template)


def test_it_reaches_what_it_asks_for_or_its_template_says_or_packages() -> None:
    none = replace(TEMPLATE, network="none")
    assert create().result.network == "packages"
    assert create(template=none).result.network == "none"
    assert create(replace(NEW, network="internet"), none).result.network == "internet"


def test_it_takes_environment_and_folder_from_its_template() -> None:
    template = replace(TEMPLATE, environment="debian12", repository_folder="apps/web")
    made = create(template=template).result
    assert (made.environment, made.folder) == ("debian12", "apps/web")


@pytest.mark.parametrize("status", [*ACTIVE, *INACTIVE])
def test_its_network_changes_at_any_time(status: Status) -> None:
    transition = update(replace(SANDBOX, status=status), {"network": "internet"}, template=None)
    assert transition.events[0].data["network"] == "internet"
    assert_told(transition)


@pytest.mark.parametrize("status", [*ACTIVE, *INACTIVE])
def test_name_and_description_change_at_any_time(status: Status) -> None:
    transition = update(replace(SANDBOX, status=status), {"name": "other"}, template=None)
    assert (transition.result.name, transition.result.updated_at) == ("other", NOW)
    assert transition.events[0].data.keys() == {"name", "updated_at"}
    assert transition.preconditions == (PROJECT,)
    assert_told(transition)


@pytest.mark.parametrize("values", [{}, {"name": "box"}, {"cpu_spec": 1.0}])
def test_what_is_like_that_already_does_not_change(values: Any) -> None:
    assert update(SANDBOX, values) is None


@pytest.mark.parametrize("field", ["cpu_spec", "memory_spec", "max_running_seconds"])
def test_resources_change_while_it_is_not_active(field: str) -> None:
    for status in INACTIVE:
        assert update(replace(SANDBOX, status=status), {field: 2}).result.status is status
    for status in ACTIVE:
        with pytest.raises(SandboxBusyError):
            update(replace(SANDBOX, status=status), {field: 2})
    with pytest.raises(TemplateNotUsableError):
        update(SANDBOX, {field: 2}, template=None)


def test_what_was_recycled_neither_changes_nor_starts() -> None:
    recycled = replace(SANDBOX, status=Status.RECYCLED)
    with pytest.raises(SandboxRecycledError):
        update(recycled, {})
    with pytest.raises(SandboxRecycledError):
        start(recycled)


def test_an_archived_project_changes_nothing() -> None:
    for values in ({}, {"name": "other"}, {"cpu_spec": 2.0}):
        with pytest.raises(ProjectReadOnlyError):
            update(SANDBOX, values, project=ARCHIVED)


@pytest.mark.parametrize("status", INACTIVE)
def test_a_start_is_a_new_attempt(status: Status) -> None:
    before = replace(SANDBOX, status=status, attempt=2, status_reason="x", timeout_at=NOW)
    transition = start(before)
    after = transition.result
    assert (after.status, after.attempt, after.node) == (Status.STARTING, 3, "n")
    assert (after.status_reason, after.timeout_at, after.updated_at) == (None, None, NOW)
    assert transition.preconditions == (PROJECT, FREE)
    assert transition.events[0].kind == "sandbox.starting"
    assert_told(transition)


@pytest.mark.parametrize("status", ACTIVE)
def test_what_is_active_is_not_started_again(status: Status) -> None:
    assert start(replace(SANDBOX, status=status), project=ARCHIVED, template=None) is None


@pytest.mark.parametrize(("template", "project", "error"), UNUSABLE)
def test_a_start_needs_a_template_and_a_project(
    template: Any, project: Any, error: type[SandyardError]
) -> None:
    with pytest.raises(error):
        start(SANDBOX, template, project)


def test_with_a_snapshot_it_starts_without_its_template() -> None:
    kept = replace(SANDBOX, latest_snapshot_id="snap-1")
    assert start(kept, template=None).result.status is Status.STARTING


@pytest.mark.parametrize(
    ("in_use", "exceeded"),
    [
        (Resources(2, 3.0, 7.0, 18.0), set()),
        (Resources(3, 0.0, 0.0, 0.0), {"sandboxes"}),
        (Resources(0, 3.1, 0.0, 0.0), {"cpu"}),
        (Resources(0, 0.0, 7.5, 0.0), {"memory_gb"}),
        (Resources(0, 0.0, 0.0, 18.1), {"storage_gb"}),
        (Resources(3, 4.0, 8.0, 0.0), {"sandboxes", "cpu", "memory_gb"}),
    ],
)
def test_the_quota_may_be_used_up_and_no_more(in_use: Resources, exceeded: set[str]) -> None:
    check = check_quota(QuotaRequest(OWNER, 1, 1, QUOTA, storage_gb=2), in_use)
    assert set(check.exceeded) == exceeded
    if not exceeded:
        assert start(SANDBOX, quota=check).preconditions == (PROJECT, check)
        return
    with pytest.raises(QuotaExceededError) as refused:
        start(SANDBOX, quota=check)
    details = refused.value.details or {}
    assert set(details) == exceeded
    if "sandboxes" in exceeded:
        assert details["sandboxes"] == {"limit": 3, "in_use": 3, "asked": 1}
        assert "3 of 3 sandboxes in use, 1 needed" in refused.value.message
