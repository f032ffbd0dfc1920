"""Templates: who may see and change each, and where they may come from, without any I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, TypedDict
from urllib.parse import urlsplit

from sandyard.kit.patterns import pattern
from sandyard.kit.transitions import Cause, Transition, changed, created
from sandyard.platform.budgets import Budget
from sandyard.platform.principal import Principal
from sandyard.platform.templates.errors import (
    OfficialTemplateError,
    TemplateReadOnlyError,
    TemplatesLimitError,
)
from sandyard.platform.updates import updated

BUILTIN: Mapping[str, tuple[str, str]] = {
    "static": ("html", "A page served as it is. Change the files and look at it."),
    "python-web": ("python", "A web application of Python's standard library alone."),
}
"""What ships with the product: the name of each, its language and what it is."""

MIN_CPU, MAX_CPU = 1, 8
MIN_MEMORY, MAX_MEMORY = 0.5, 16

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?"
REPOSITORY_URL = pattern(
    rf"^(https://{_HOST}(/[A-Za-z0-9._~+,=-]+)+/?|builtin:[a-z0-9-]+)$",
    "must be an https:// URL with a path and without credentials or query, or builtin: and a name",
)
"""No user, password, query or fragment, in which a credential could hide."""


class Visibility(StrEnum):
    OFFICIAL = "official"
    PUBLIC = "public"
    PRIVATE = "private"


VISIBILITY_FLAGS = (("is_official", Visibility.OFFICIAL), ("is_public", Visibility.PUBLIC))
"""The first of these fields that is set decides; a template with none of them is private."""


class TemplateSort(StrEnum):
    NEWEST = "-created_at"
    OLDEST = "created_at"
    NAME = "name"
    NAME_REVERSED = "-name"


class TemplateChanges(TypedDict, total=False):
    """What is left out stays as it is."""

    name: str
    description: str | None
    category: str
    language: str
    min_cpu_required: float
    min_memory_required: float
    is_public: bool
    repository_url: str
    tags: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Template:
    SUBJECT: ClassVar[str] = "template_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    template_id: str
    name: str
    description: str | None
    category: str
    language: str
    min_cpu_required: float
    min_memory_required: float
    is_official: bool
    is_public: bool
    owner_account_id: str | None
    repository_url: str
    tags: Sequence[str] | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    sequence: int = 0

    @property
    def visibility(self) -> Visibility:
        set_ = (each for flag, each in VISIBILITY_FLAGS if getattr(self, flag))
        return next(set_, Visibility.PRIVATE)

    def is_visible_to(self, account_id: str) -> bool:
        return bool(is_visible(self, account_id))

    def require_changeable_by(self, principal: Principal) -> None:
        """Its owner may change it, and an admin if everyone sees it; TemplateReadOnlyError."""
        is_owner = self.owner_account_id == principal.account_id
        if not is_owner and not (principal.is_admin and (self.is_official or self.is_public)):
            raise TemplateReadOnlyError


@dataclass(frozen=True, slots=True)
class NewTemplate:
    """What somebody wants a template to be."""

    name: str
    description: str | None
    category: str
    language: str
    min_cpu_required: float
    min_memory_required: float
    is_official: bool
    is_public: bool
    repository_url: str
    tags: Sequence[str] | None

    def require_makeable_by(self, principal: Principal) -> None:
        if self.is_official and not principal.is_admin:
            raise OfficialTemplateError


@dataclass(frozen=True, slots=True)
class TemplateFilter:
    search: str | None = None
    category: str | None = None
    language: str | None = None
    tag: str | None = None
    visibility: Visibility | None = None


def is_visible(template: Any, account_id: str) -> Any:
    """Whether the account may see and use the template. Given a Template, a bool; given the columns
    of a table, the SQL condition."""
    return template.is_official | template.is_public | (template.owner_account_id == account_id)


def create_template(
    wanted: NewTemplate, *, template_id: str, by: Principal, budget: Budget, cause: Cause
) -> Transition[Template]:
    """OfficialTemplateError, TemplatesLimitError. An official one is on nobody's budget."""
    wanted.require_makeable_by(by)
    if wanted.is_official:
        return _created(wanted, template_id, None, cause)
    budget.require(TemplatesLimitError)
    return replace(_created(wanted, template_id, by.account_id, cause), given=(budget,))


def create_official_template(
    wanted: NewTemplate, *, template_id: str, cause: Cause
) -> Transition[Template]:
    """One that ships with the product."""
    return _created(wanted, template_id, None, cause)


def update_template(
    template: Template, changes: TemplateChanges, *, by: Principal, cause: Cause
) -> Transition[Template] | None:
    """TemplateReadOnlyError."""
    template.require_changeable_by(by)
    return updated(template, replace(template, **changes), "template.updated", cause)


def delete_template(template: Template, *, by: Principal, cause: Cause) -> Transition[Template]:
    """Sandboxes that were made from it go on. TemplateReadOnlyError."""
    template.require_changeable_by(by)
    deleted = replace(template, deleted_at=cause.at, updated_at=cause.at)
    return changed(template, deleted, "template.deleted", cause)


def _created(
    wanted: NewTemplate, template_id: str, owner: str | None, cause: Cause
) -> Transition[Template]:
    template = Template(
        template_id=template_id,
        owner_account_id=owner,
        created_at=cause.at,
        updated_at=cause.at,
        **asdict(wanted),
    )
    return created(template, "template.created", cause)


def require_repository_url(url: str) -> str:
    """The URL, or ValueError with what is wrong with it."""
    if not re.fullmatch(REPOSITORY_URL, url):
        raise ValueError(
            "must be https://… without user, password, query or fragment, or builtin:…"
        )
    urlsplit(url).port  # noqa: B018 - a ValueError if it is none
    kind, _, name = url.partition(":")
    if kind == "builtin" and name not in BUILTIN:
        raise ValueError(f"must be one of {', '.join(f'builtin:{each}' for each in BUILTIN)}")
    return url


def official_templates() -> Sequence[NewTemplate]:
    """Those that ship with the product."""
    return [
        NewTemplate(
            name=name,
            description=description,
            category="web",
            language=language,
            min_cpu_required=1,
            min_memory_required=0.5,
            is_official=True,
            is_public=True,
            repository_url=f"builtin:{name}",
            tags=["web", "starter"],
        )
        for name, (language, description) in BUILTIN.items()
    ]
