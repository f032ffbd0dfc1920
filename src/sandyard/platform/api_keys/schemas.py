"""The bodies and answers of API keys, as the OpenAPI document describes them."""

from datetime import datetime

from pydantic import Field

from sandyard.kit.http.schemas import PageAnswer, example
from sandyard.platform.access.principal import Scope
from sandyard.platform.api_keys.model import KeyFormat
from sandyard.platform.http.fields import Answer, NamedBody, NewNamedBody, Timestamp


class NewApiKeyBody(NewNamedBody):
    model_config = example(
        name="CI",
        description="Starts sandboxes for pull requests",
        scope="run",
        expires_at="2126-12-31T00:00:00Z",
    )

    scope: Scope = Field(Scope.ADMIN, description="Each includes the ones before it")
    expires_at: Timestamp | None = Field(None, description="When it expires")

    format: KeyFormat = Field(
        KeyFormat.SANDYARD, description="`e2b` for E2B's SDKs; the access is the same"
    )


class ApiKeyBody(NamedBody):
    """Fields that are left out stay as they are."""

    model_config = example(description=None)


class ApiKeyAnswer(Answer):
    model_config = example(
        key_id="key-7r2d9f0h3j5k8l1zq",
        name="CI",
        description="Starts sandboxes for pull requests",
        prefix="sbk-9f3k",
        is_active=True,
        scope="run",
        expires_at=None,
        last_used_at=None,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    key_id: str
    name: str
    description: str | None
    prefix: str = Field(validation_alias="api_key", description="Prefix of the key")
    is_active: bool
    scope: Scope
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="To within five minutes")
    created_at: datetime
    updated_at: datetime


class NewApiKeyAnswer(Answer):
    model_config = example(
        key_id="key-7r2d9f0h3j5k8l1zq",
        api_key="sbk-9f3k2m5n8p1q4r7s0t3v6w9x2y5z8a1b4c7d0e3f",
        name="CI",
        description="Starts sandboxes for pull requests",
        scope="run",
        expires_at=None,
        created_at="2026-10-30T09:00:00Z",
    )

    key_id: str
    api_key: str = Field(description="Shown only once")
    name: str
    description: str | None
    scope: Scope
    expires_at: datetime | None
    created_at: datetime


class ApiKeyPage(PageAnswer):
    api_keys: list[ApiKeyAnswer]
    next_cursor: str | None
