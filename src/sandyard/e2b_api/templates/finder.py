"""Finds and changes templates by the names that E2B's SDKs use."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.e2b_api.paging import all_matching, matching
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.listings.model import Listing
from sandyard.platform.sandboxes.archives.service import SandboxArchives
from sandyard.platform.templates.errors import (
    TagUnknownError,
    TemplateNotFoundError,
    TemplateReadOnlyError,
)
from sandyard.platform.templates.model import (
    DEFAULT_TAG,
    NewTemplate,
    Template,
    TemplateChanges,
    TemplateFilter,
    TemplateSort,
)
from sandyard.platform.templates.service import Templates

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_TAGS = 50


@dataclass(frozen=True, slots=True)
class TemplateName:
    """As SDKs send it: optionally with a team before and a tag after it."""

    name: str
    tag: str | None = None

    @classmethod
    def of(cls, text: str) -> "TemplateName":
        name, _, tag = text.rpartition("/")[2].partition(":")
        return cls(name, tag or None)

    @classmethod
    def new(cls, text: str) -> "TemplateName":
        """Raises InvalidRequestError for an invalid name."""
        given = cls.of(text)
        is_good = _NAME.fullmatch(given.name) and (given.tag is None or _TAG.fullmatch(given.tag))
        if not is_good or given.name.startswith("tpl-"):
            raise InvalidRequestError(f"'{text[:64]}' can't be the name of a template.")
        return given


class TemplateFinder:
    def __init__(self, templates: Templates, archives: SandboxArchives) -> None:
        self._templates = templates
        self._archives = archives

    async def find(self, text: str, *, account_id: str) -> Template:
        """By id or name. Raises TemplateNotFoundError."""
        plain = TemplateName.of(text).name
        if plain.startswith("tpl-"):
            return await self._templates.get(account_id, plain)
        found = await self._named(account_id, plain)
        if not found:
            raise TemplateNotFoundError(f"template '{text[:128]}' not found")
        return min(found, key=lambda each: _rank(each, account_id))

    async def find_by_id(self, template_id: str, *, account_id: str) -> Template | None:
        try:
            return await self._templates.get(account_id, template_id)
        except TemplateNotFoundError:
            return None

    async def find_own(self, name: str, *, account_id: str) -> Template | None:
        found = await self._named(account_id, name)
        return next((each for each in found if each.owner_account_id == account_id), None)

    async def list(self, account_id: str) -> Sequence[Template]:
        return await self._named(account_id, None)

    async def snapshots(
        self,
        *,
        by: Principal,
        made_from: str | None,
        name: str | None,
        limit: int,
        cursor: str | None,
    ) -> tuple[Sequence[Template], str | None]:
        """The account's own, newest first."""

        async def fetch(count: int, after: str | None) -> Page[Template]:
            newest = Listing(TemplateFilter(), TemplateSort.NEWEST, count, after)
            return await self._templates.list(by.account_id, newest)

        def has(template: Template) -> bool:
            return (
                template.owner_account_id == by.account_id
                and template.made_from is not None
                and made_from in (None, template.made_from)
                and name in (None, template.name, template.template_id)
            )

        return await matching(fetch, has, limit=limit, cursor=cursor)

    async def keep(
        self,
        wanted: NewTemplate,
        archive_id: str,
        tags: Sequence[str],
        *,
        by: Principal,
        new_id: str,
    ) -> Template:
        """Create the template, or add a build with these tags to the account's own of this name.
        The first build is also the default one. If that fails, the archive is dropped."""
        try:
            own = await self.find_own(wanted.name, account_id=by.account_id)
            before = {} if own is None else own.archives or {}
            archives = {DEFAULT_TAG: archive_id, **before, **dict.fromkeys(tags, archive_id)}
            if own is not None:
                return await self._change(own, _changes(wanted, archives), by=by)
            counted = await self._archives.counted(archives.values(), by=by)
            made = replace(wanted, **(counted | {"archives": archives}))
            return await self._templates.create(by, made, template_id=new_id)
        except BaseException:  # also if the caller has gone
            await asyncio.shield(self._archives.drop([archive_id]))
            raise

    async def assign(self, target: str, tags: Sequence[str], *, by: Principal) -> str:
        """Add tags to a build; returns the build's id. Raises TagUnknownError."""
        template = await self.find(target, account_id=by.account_id)
        archive_id = template.archive_of(TemplateName.of(target).tag or DEFAULT_TAG)
        if archive_id is None:
            raise TagUnknownError
        added = dict.fromkeys(map(new_tag, tags), archive_id)
        archives = {**(template.archives or {}), **added}
        await self._change(template, {"archives": archives}, by=by)
        return archive_id

    async def remove_tags(self, name: str, tags: Sequence[str], *, by: Principal) -> None:
        """Raises TagUnknownError."""
        template = await self.find(name, account_id=by.account_id)
        archives = dict(template.archives or {})
        if DEFAULT_TAG in (TemplateName.of(tag).tag or tag for tag in tags):
            raise InvalidRequestError(
                f"The tag `{DEFAULT_TAG}` can't be removed: build again to move it."
            )
        for tag in tags:
            if archives.pop(TemplateName.of(tag).tag or tag, None) is None:
                raise TagUnknownError
        await self._change(template, {"archives": archives}, by=by)

    async def delete(self, name: str, *, by: Principal) -> None:
        """Templates made by this API can be deleted by any key that may call it; others need the
        scope `admin`."""
        template = await self.find(name, account_id=by.account_id)
        if template.archives is None and not by.scope.includes(Scope.ADMIN):
            raise TemplateReadOnlyError
        await self._templates.delete(by, template.template_id)
        await self._archives.drop((template.archives or {}).values())

    async def publish(self, name: str, *, is_public: bool, by: Principal) -> None:
        template = await self.find(name, account_id=by.account_id)
        await self._templates.update(by, template.template_id, {"is_public": is_public})

    async def _change(
        self, template: Template, changes: TemplateChanges, *, by: Principal
    ) -> Template:
        if len(changes.get("archives", ())) > _MOST_TAGS:
            raise InvalidRequestError(f"A template has at most {_MOST_TAGS} tags.")
        counted = await self._archives.counted(
            changes.get("archives", {}).values(), by=by, template_id=template.template_id
        )
        whole: TemplateChanges = {**changes, **counted}
        changed = await self._templates.update(by, template.template_id, whole)
        await self._archives.drop((template.archives or {}).values())
        return changed

    async def _named(self, account_id: str, name: str | None) -> Sequence[Template]:
        async def fetch(count: int, after: str | None) -> Page[Template]:
            by_name = Listing(TemplateFilter(search=name), TemplateSort.NAME, count, after)
            return await self._templates.list(account_id, by_name)

        return await all_matching(fetch, lambda each: name in (None, each.name))


def _changes(wanted: NewTemplate, archives: Mapping[str, str]) -> TemplateChanges:
    """Those that another build makes to a template."""
    return {
        "archives": archives,
        "start_command": wanted.start_command,
        "ready_command": wanted.ready_command,
        "working_folder": wanted.working_folder,
        "default_user": wanted.default_user,
        "build_variables": wanted.build_variables,
        "archived_by": wanted.archived_by,
    }


def new_tag(text: str) -> str:
    """The tag of `name:tag`, or the tag alone. Raises InvalidRequestError for an invalid one."""
    tag = TemplateName.of(text).tag or text
    if not _TAG.fullmatch(tag):
        raise InvalidRequestError(f"'{text[:64]}' can't be a tag.")
    return tag


def archive_of(template: Template, text: str) -> str | None:
    """The archive that a sandbox of this template and tag starts with. Raises TagUnknownError."""
    tag = TemplateName.of(text).tag
    is_any = tag == "latest" and tag not in (template.archives or {})
    return template.archive_of(None if is_any else tag)


def _rank(template: Template, account_id: str) -> int:
    """The account's own first, then official ones, then those that others have published."""
    if template.owner_account_id == account_id:
        return 0
    return 1 if template.is_official else 2
