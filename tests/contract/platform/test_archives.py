"""Which archives are still needed, on every engine."""

from dataclasses import replace

from sandyard.kit.transitions import Cause, changed
from sandyard.platform.principal import Principal, Role
from sandyard.platform.sandboxes.model import Status
from sandyard.platform.templates.model import NewTemplate
from tests.platforms import PlatformApi
from tests.sandboxes import add_sandbox


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
