"""Finds and changes templates by the names that E2B's SDKs use."""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from sandyard.e2b_api.errors import InvalidRequestError
from sandyard.kit.paging import Page
from sandyard.platform.access.principal import Principal, Scope
from sandyard.platform.entities.model import FieldChanges, Listing
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
    TemplateFilter,
    TemplateSort,
)
from sandyard.platform.templates.service import Templates

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_TAGS = 50
OF_BUILD = (
    "start_command",
    "ready_command",
    "working_folder",
    "default_user",
    "build_variables",
)
"""The fields of a template that its last build decides."""
_OF_IMAGE = ("environment", "repository_url")
T = TypeVar("T")
Fetch = Callable[[int, str | None], Awaitable[Page[T]]]
_PAGE = 100


@dataclass(frozen=True, slots=True)
class TemplateName:
    """As SDKs send it: optionally with a team before and a tag after it."""

    name: str
    tag: str | None = None

    @classmethod
    def of(cls, text: str) -> "TemplateName":
        """Raises InvalidRequestError for a colon without a tag."""
        name, colon, tag = text.rpartition("/")[2].partition(":")
        if colon and not tag:
            raise InvalidRequestError(f"'{text[:64]}' has no tag after its colon.")
        return cls(name, tag or None)

    @classmethod
    def new(cls, text: str) -> "TemplateName":
        """Raises InvalidRequestError for an invalid name."""
        given = cls.of(text)
        is_good = _NAME.fullmatch(given.name) and (given.tag is None or _TAG.fullmatch(given.tag))
        if not is_good or given.name.startswith("tpl-"):
            raise InvalidRequestError(f"'{text[:64]}' can't be the name of a template.")
        return given


@dataclass(frozen=True, slots=True)
class TemplateFinder:
    templates: Templates
    archives: SandboxArchives

    async def find(self, text: str, *, account_id: str) -> Template:
        """By id or name: the account's own first, then official ones, then those that others have
        published. Raises TemplateNotFoundError."""
        plain = TemplateName.of(text).name
        if plain.startswith("tpl-"):
            return await self.templates.get(account_id, plain)
        found = await self._named(account_id, plain)
        if not found:
            raise TemplateNotFoundError(f"template '{text[:128]}' not found")
        return min(
            found, key=lambda each: (each.owner_account_id != account_id, not each.is_official)
        )

    async def find_by_id(self, template_id: str, *, account_id: str) -> Template | None:
        try:
            return await self.templates.get(account_id, template_id)
        except TemplateNotFoundError:
            return None

    async def find_own(self, name: str, *, account_id: str) -> Template | None:
        found = await self._named(account_id, name)
        return next((each for each in found if each.owner_account_id == account_id), None)

    async def find_official(self, builtin: str, *, account_id: str) -> Template | None:
        """The one that ships with the product, without any builds."""
        found = await self._named(account_id, builtin)
        return next((each for each in found if each.is_official and not each.archives), None)

    async def environments(self) -> Set[str]:
        return await self.templates.environments()

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
            return await self.templates.list(by.account_id, newest)

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
        template_id: str,
    ) -> Template:
        """Create the template, or add a build with these tags to the account's own of this name.
        The first build is also the default one. If that fails, the archive is dropped."""
        try:
            own = await self.require_room(wanted, tags, account_id=by.account_id)
            before = {} if own is None else own.archives or {}
            archives = {DEFAULT_TAG: archive_id, **before, **dict.fromkeys(tags, archive_id)}
            if own is not None:
                return await self._change(own, _changes(wanted, archives), by=by)
            counted = await self.archives.counted(archives.values(), by=by)
            made = replace(wanted, **counted, archives=archives)
            return await self.templates.create(by, made, template_id=template_id)
        except BaseException:  # also if the caller has gone
            await asyncio.shield(self.archives.drop([archive_id]))
            raise

    async def require_room(
        self, wanted: NewTemplate, tags: Sequence[str], *, account_id: str
    ) -> Template | None:
        """The account's own template of this name, if there is one. All builds of a template start
        on its image: raises InvalidRequestError if others would be left that have another one."""
        own = await self.find_own(wanted.name, account_id=account_id)
        if own is None or all(getattr(own, each) == getattr(wanted, each) for each in _OF_IMAGE):
            return own
        if others := sorted(set(own.archives or {}) - set(tags)):
            raise InvalidRequestError(
                f"The template '{own.name}' has builds of another image, with the tags "
                f"{', '.join(others)}. Build under another name, or delete the template first."
            )
        return own

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
        await self.templates.delete(by, template.template_id)
        await self.archives.drop((template.archives or {}).values())

    async def publish(self, name: str, *, is_public: bool, by: Principal) -> None:
        template = await self.find(name, account_id=by.account_id)
        await self.templates.update(by, template.template_id, {"is_public": is_public})

    async def _change(
        self, template: Template, changes: FieldChanges, *, by: Principal
    ) -> Template:
        if len(changes.get("archives", ())) > _MOST_TAGS:
            raise InvalidRequestError(f"A template has at most {_MOST_TAGS} tags.")
        counted = await self.archives.counted(
            changes.get("archives", {}).values(), by=by, template_id=template.template_id
        )
        whole: FieldChanges = {**changes, **counted}
        changed = await self.templates.update(by, template.template_id, whole)
        await self.archives.drop((template.archives or {}).values())
        return changed

    async def _named(self, account_id: str, name: str | None) -> Sequence[Template]:
        async def fetch(count: int, after: str | None) -> Page[Template]:
            by_name = Listing(TemplateFilter(search=name), TemplateSort.NAME, count, after)
            return await self.templates.list(account_id, by_name)

        found, _ = await matching(
            fetch, lambda each: name in (None, each.name), limit=sys.maxsize, cursor=None
        )
        return found


def _changes(wanted: NewTemplate, archives: Mapping[str, str]) -> FieldChanges:
    """Those that another build makes to a template."""
    decided = (*OF_BUILD, *_OF_IMAGE, "min_cpu_required", "min_memory_required", "archived_by")
    of_build = {name: getattr(wanted, name) for name in decided}
    return {"archives": archives, **of_build}


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


async def matching(
    fetch: Fetch[T], has: Callable[[T], bool], *, limit: int, cursor: str | None
) -> tuple[Sequence[T], str | None]:
    """At most `limit` items that match `has`, and the next cursor."""
    found: list[T] = []
    while len(found) < limit:
        page = await fetch(min(limit - len(found), _PAGE), cursor)
        found += [each for each in page.items if has(each)]
        cursor = page.next_cursor
        if cursor is None:
            return found, None
    return found, cursor if await _has_more(fetch, has, cursor) else None


async def _has_more(fetch: Fetch[T], has: Callable[[T], bool], cursor: str | None) -> bool:
    while cursor is not None:
        page = await fetch(_PAGE, cursor)
        if any(has(each) for each in page.items):
            return True
        cursor = page.next_cursor
    return False
