"""Templates: who may see and change each, and where they may come from, without any I/O."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypedDict
from urllib.parse import urlsplit

from sandyard.platform.principal import Principal
from sandyard.platform.templates.errors import OfficialTemplateError, TemplateReadOnlyError

BUILTIN: Mapping[str, tuple[str, str]] = {
    "static": ("html", "A page served as it is. Change the files and look at it."),
    "python-web": ("python", "A web application of Python's standard library alone."),
}
"""What ships with the product: the name of each, its language and what it is."""

MIN_CPU, MAX_CPU = 1, 8
MIN_MEMORY, MAX_MEMORY = 0.5, 16

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?"
REPOSITORY_URL = rf"^(https://{_HOST}(/[A-Za-z0-9._~+,=-]+)+/?|builtin:[a-z0-9-]+)$"
"""No user, password, query or fragment, in which a credential could hide."""


class Visibility(StrEnum):
    OFFICIAL = "official"
    PUBLIC = "public"
    PRIVATE = "private"


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

    @property
    def visibility(self) -> Visibility:
        if self.is_official:
            return Visibility.OFFICIAL
        return Visibility.PUBLIC if self.is_public else Visibility.PRIVATE

    def is_visible_to(self, account_id: str) -> bool:
        return self.is_official or self.is_public or self.owner_account_id == account_id

    def require_changeable_by(self, principal: Principal) -> None:
        """Its owner's, and if everyone sees it, an admin's too."""
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
