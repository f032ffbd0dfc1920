"""Which archives are still needed, on every engine."""

from dataclasses import replace
from fractions import Fraction

from sandyard.kit.changes.transitions import Cause, changed
from sandyard.kit.clock import utc_time
from sandyard.kit.sizes import GIGABYTE
from sandyard.platform.access.principal import Principal, Role
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.schema.tables import billing_records, sandbox_usage
from sandyard.platform.templates.model import NewTemplate
from sandyard.platform.usage.model import midnight
from tests.contract.platform.lives import DAY, PRICES, bill, milliseconds_between, price, rows_of
from tests.support.platform.in_process import PlatformApi
from tests.support.platform.sandboxes import add_sandbox


async def test_an_archive_is_needed_by_templates_and_by_those_that_have_not_run(
    api: PlatformApi,
) -> None:
    ann, store = await api.account(), api.part.wired.store
    by = Principal(ann.account_id, Role.USER)
    asked = ["of-template", "of-tag", "of-sandbox", "of-nobody"]
    archives = {"default": "of-template", "v1": "of-tag"}
    template = await api.part.templates.create(by, kept(archives))
    assert await store.referenced_archives(asked) == {"of-template", "of-tag"}
    await api.part.templates.update(by, template.template_id, {"archives": {"v1": "of-tag"}})
    assert await store.referenced_archives(asked) == {"of-tag"}
    await api.part.templates.delete(by, template.template_id)
    assert await store.referenced_archives(asked) == set()
    made = await add_sandbox(api, ann)
    found = await store.find(made["sandbox_id"])
    assert found is not None
    cause = Cause.by("system", api.clock)
    begun = replace(found, archive_id="of-sandbox")
    assert await store.apply(changed(found, begun, "sandbox.updated", cause))
    assert await store.referenced_archives(asked) == {"of-sandbox"}
    known = await store.find(made["sandbox_id"])
    assert known is not None
    over = replace(known, status=Status.RECYCLED)
    assert await store.apply(changed(known, over, "sandbox.recycled", cause))
    assert await store.referenced_archives(asked) == set()


async def test_a_sandbox_begins_with_what_its_template_has(api: PlatformApi) -> None:
    ann = await api.account()
    by = Principal(ann.account_id, Role.USER)
    template = await api.part.templates.create(by, kept({"default": "one", "v1": "two"}))
    made = await add_sandbox(api, ann, template_id=template.template_id)
    found = await api.part.wired.store.find(made["sandbox_id"])
    assert found is not None
    assert found.archive_id == "one"


async def test_keeping_archives_is_on_bills(api: PlatformApi) -> None:
    """From when they are there, each day, until the template is deleted; and never twice."""
    ann, at = await api.account(), utc_time(api.clock.now())
    by = Principal(ann.account_id, Role.USER)
    sandbox_id = (await add_sandbox(api, ann))["sandbox_id"]
    wanted = replace(
        kept({"default": "one"}),
        archive_bytes=3 * GIGABYTE,
        archived_by=sandbox_id,
        storage_counted_until=at,
    )
    template = await api.part.templates.create(by, wanted)
    api.clock.advance(2 * DAY)
    for _ in range(2):
        await bill(api, api.clock)
    until = midnight(utc_time(api.clock.now()).date())
    [first] = await rows_of(api, sandbox_usage, [sandbox_id])
    assert (first.start_time, first.end_time, first.storage_gb) == (at, until, 3)
    rate = PRICES.of_storage(size_bytes=3 * GIGABYTE)
    assert first.cost == price(Fraction(milliseconds_between(at, until), 1000), rate)
    await api.part.templates.delete(by, template.template_id)
    deleted_at = utc_time(api.clock.now())
    api.clock.advance(3 * DAY)
    for _ in range(2):
        await bill(api, api.clock)
    first, second = await rows_of(api, sandbox_usage, [sandbox_id])
    assert (second.start_time, second.end_time) == (until, deleted_at)
    bills = await rows_of(api, billing_records, [sandbox_id])
    assert sum(each.amount for each in bills) == first.cost + second.cost


async def test_another_build_is_counted_from_then_on(api: PlatformApi) -> None:
    ann, at = await api.account(), utc_time(api.clock.now())
    by = Principal(ann.account_id, Role.USER)
    sandbox_id = (await add_sandbox(api, ann))["sandbox_id"]
    wanted = replace(
        kept({"default": "one"}), archive_bytes=10, archived_by=sandbox_id, storage_counted_until=at
    )
    template = await api.part.templates.create(by, wanted)
    api.clock.advance(100)
    archives = api.part.wired.archives
    elsewhere = await archives.counted(["one"], by=by, template_id=template.template_id)
    assert elsewhere == {}, "no node has it"
    counted = await archives.counted([], by=by)
    assert counted == {"archive_bytes": 0, "storage_counted_until": None}
    [usage] = await rows_of(api, sandbox_usage, [sandbox_id])
    assert usage.end_time == utc_time(api.clock.now())
    found = await api.part.templates.get(ann.account_id, template.template_id)
    assert found.storage_counted_until == usage.end_time


def kept(archives: dict[str, str]) -> NewTemplate:
    return NewTemplate(
        name="kept",
        description=None,
        category="build",
        language="any",
        min_cpu_required=1,
        min_memory_required=0.5,
        is_official=False,
        is_public=False,
        repository_url="builtin:base",
        tags=None,
        archives=archives,
    )
