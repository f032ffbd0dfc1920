"""Templates: visibility, permissions and allowed repositories, without any I/O."""

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar
from urllib.parse import urlsplit

from sandyard.kit.changes.transitions import Cause, Transition, changed, created
from sandyard.kit.patterns import pattern
from sandyard.platform.access.principal import Principal
from sandyard.platform.entities.model import FieldChanges, updated
from sandyard.platform.quotas.model import CountQuota
from sandyard.platform.templates import errors
from sandyard.runtime.model import IsolationMode
from sandyard.runtime.network_model import Network

BUILTIN: Mapping[str, tuple[str, str]] = {
    "static": ("html", "A page served as it is. Change the files and look at it."),
    "python-web": ("python", "A web application of Python's standard library alone."),
    "flask": ("python", "A Flask application that is loaded anew when its files change."),
    "fastapi": ("python", "A FastAPI application that is loaded anew when its files change."),
    "vite": ("javascript", "A page built by Vite, which shows changes at once."),
    "browser": ("python", "Chromium driven by Playwright: what a browser makes of a page."),
    "analysis": ("python", "pandas, matplotlib and the usual packages for data, pinned."),
    "python": ("python", "A machine with Python that waits for commands."),
    "node": ("javascript", "A machine with Node.js that waits for commands."),
    "base": ("any", "A machine without files that waits for commands."),
    "code-interpreter-v1": (
        "python",
        "A machine with Jupyter kernels for E2B's code interpreter.",
    ),
}
"""The templates that ship with the product: name, language and description."""
EMPTY = frozenset({"base", "code-interpreter-v1"})
"""Those without any files."""
DEFAULT_TAG = "default"
BARE = EMPTY | {"python", "node"}
"""Those without a program."""

IMAGE_PROGRAM = "builtin:image"
"""In place of a repository: no files, and the program of its image."""
_BUILTIN = "builtin:"
MIN_CPU, MAX_CPU = 1, 8
MIN_MEMORY, MAX_MEMORY = 0.5, 16

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(:[0-9]{1,5})?"
REPOSITORY_URL = pattern(
    rf"^(https://{_HOST}(/[A-Za-z0-9._~+,=-]+)+/?|builtin:[a-z0-9-]+)$",
    "must be an https:// URL with a path and without credentials or query, or builtin: and a name",
)
"""No user, password, query or fragment, which could contain a credential."""

REPOSITORY_REF = pattern(
    r"^[A-Za-z0-9_][A-Za-z0-9_+-]*([./][A-Za-z0-9_+-]+)*$", "must be a branch or a tag"
)
REPOSITORY_FOLDER = pattern(
    r"^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*$",
    "must be a folder below the top of the repository, such as apps/web",
)
ENVIRONMENT_NAME = pattern(
    r"^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$", "must be small letters, digits, dots and dashes"
)
VARIABLE_NAME = pattern(r"^[A-Za-z_][A-Za-z0-9_]*$", "must be the name of a variable")


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


@dataclass(frozen=True, slots=True)
class TemplateFields:
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
    repository_ref: str | None = None
    """A branch or a tag; None is the default branch."""
    repository_folder: str | None = None
    """The folder of its program in the repository; None is the top."""
    repository_secret: str | None = None
    """The variable of a sandbox or its project that has the token for the repository."""
    network: Network | None = None
    """The default network of its sandboxes; None is the general default."""
    environment: str | None = None
    """The root file system of its sandboxes: an environment's name or an image's id; None is the
    host's."""
    isolation: IsolationMode | None = None
    """The weakest of its sandboxes; None is the operator's."""
    warm_machines: int = 0
    """How many warm machines each node has for its next sandboxes."""
    archives: Mapping[str, str] | None = None
    """By tag, the archives that its sandboxes start with in place of the repository's files; each
    is on the node that made it."""
    made_from: str | None = None
    """For a snapshot, the sandbox whose files it has."""
    start_command: str | None = None
    """The program of its sandboxes; E2B's API starts it itself in those that it makes."""
    ready_command: str | None = None
    """The command that succeeds once that is ready."""
    working_folder: str | None = None
    """Where commands start in those."""
    default_user: str | None = None
    """The user that runs them: `root`, or `uid:gid`; None is `user`."""
    build_variables: Mapping[str, str] | None = None
    """The variables of builds that start from it."""
    archive_bytes: int | None = None
    """The total size of its archives."""
    archived_by: str | None = None
    """The sandbox that made the last of them, and has them on its usage."""
    storage_counted_until: datetime | None = None
    """The time up to which their storage is on usages."""


class NewTemplate(TemplateFields):
    """A template to be made."""

    def require_makeable_by(self, principal: Principal) -> None:
        if self.is_official and not principal.is_admin:
            raise errors.OfficialTemplateError
        _require_warm_by(principal, self.warm_machines, before=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template(TemplateFields):
    SUBJECT: ClassVar[str] = "template_id"
    OWNER: ClassVar[str | None] = "owner_account_id"

    template_id: str
    owner_account_id: str | None
    created_at: datetime
    updated_at: datetime
    deleted_at: datetime | None = None
    sequence: int = 0

    @property
    def visibility(self) -> Visibility:
        set_ = (each for flag, each in VISIBILITY_FLAGS if getattr(self, flag))
        return next(set_, Visibility.PRIVATE)

    def archive_of(self, tag: str | None) -> str | None:
        """The archive that a sandbox of this tag starts with. TagUnknownError."""
        archives = self.archives or {}
        if tag is None:
            return archives.get(DEFAULT_TAG)
        if tag not in archives and not (tag == DEFAULT_TAG and not archives):
            raise errors.TagUnknownError
        return archives.get(tag)

    @property
    def is_empty(self) -> bool:
        """Whether its sandboxes start without files and run nothing by themselves."""
        return self.repository_url.removeprefix(_BUILTIN) in EMPTY

    def is_visible_to(self, account_id: str) -> bool:
        return bool(is_visible(self, account_id))

    def secret_for(self, account_id: str) -> str | None:
        """The name of the secret that this account's sandboxes send to its repository. None for
        another account's template: its author must not choose who gets others' secrets."""
        is_trusted = self.is_official or self.owner_account_id == account_id
        return self.repository_secret if is_trusted else None

    def require_changeable_by(self, principal: Principal) -> None:
        """Its owner may change it, and an admin if everyone sees it; TemplateReadOnlyError."""
        is_owner = self.owner_account_id == principal.account_id
        if not is_owner and not (principal.is_admin and (self.is_official or self.is_public)):
            raise errors.TemplateReadOnlyError


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
    wanted: NewTemplate, *, template_id: str, by: Principal, quota: CountQuota, cause: Cause
) -> Transition[Template]:
    """OfficialTemplateError, TemplatesLimitError. An official one counts for no quota."""
    wanted.require_makeable_by(by)
    if wanted.is_official:
        return _created(wanted, template_id, None, cause)
    quota.require(errors.TemplatesLimitError)
    return replace(_created(wanted, template_id, by.account_id, cause), preconditions=(quota,))


def create_official_template(
    wanted: NewTemplate, *, template_id: str, cause: Cause
) -> Transition[Template]:
    """One that ships with the product."""
    return _created(wanted, template_id, None, cause)


def update_template(
    template: Template, changes: FieldChanges, *, by: Principal, cause: Cause
) -> Transition[Template] | None:
    """TemplateReadOnlyError, WarmMachinesError."""
    template.require_changeable_by(by)
    before = template.warm_machines
    _require_warm_by(by, changes.get("warm_machines", before), before=before)
    return updated(template, replace(template, **changes), "template.updated", cause)


def delete_template(template: Template, *, by: Principal, cause: Cause) -> Transition[Template]:
    """Sandboxes made from it are not affected. TemplateReadOnlyError."""
    template.require_changeable_by(by)
    deleted = replace(template, deleted_at=cause.at, updated_at=cause.at)
    return changed(template, deleted, "template.deleted", cause)


def _require_warm_by(principal: Principal, count: int, *, before: int) -> None:
    """They cost the operator, not an account."""
    if count != before and not principal.is_admin:
        raise errors.WarmMachinesError


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


def require_environment(name: str | None, known: AbstractSet[str]) -> None:
    """EnvironmentUnknownError."""
    if name is not None and name not in known:
        raise errors.EnvironmentUnknownError(details={"environments": sorted(known)})


def require_repository_url(url: str) -> str:
    """The URL, or a ValueError that says what is wrong with it."""
    if not re.fullmatch(REPOSITORY_URL, url):
        raise ValueError(
            "must be https://… without user, password, query or fragment, or builtin:…"
        )
    urlsplit(url).port  # noqa: B018 - a ValueError if it is none
    kind, _, name = url.partition(":")
    if kind == "builtin" and name not in BUILTIN and url != IMAGE_PROGRAM:
        raise ValueError(f"must be one of {', '.join(f'builtin:{each}' for each in BUILTIN)}")
    return url


def official_templates() -> Sequence[NewTemplate]:
    """Those that ship with the product."""
    return [
        NewTemplate(
            name=name,
            description=description,
            category="machine" if name in BARE else "web",
            language=language,
            min_cpu_required=1,
            min_memory_required=0.5,
            is_official=True,
            is_public=True,
            repository_url=f"builtin:{name}",
            tags=["machine" if name in BARE else "web", "starter"],
        )
        for name, (language, description) in BUILTIN.items()
    ]
