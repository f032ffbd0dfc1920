"""The bodies and answers of API keys, as the OpenAPI document describes them."""

from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from sandyard.kit.schemas import PageAnswer, example
from sandyard.platform.api_keys.model import AccountKey, KeyChanges
from sandyard.platform.fields import NamedBody, NewNamedBody


class NewApiKeyBody(NewNamedBody):
    model_config = example(name="CI", description="Starts sandboxes for pull requests")


class ApiKeyBody(NamedBody):
    """Fields that are left out stay as they are."""

    model_config = example(description=None)

    def changes(self) -> KeyChanges:
        changes: KeyChanges = self.sent()
        return changes


class ApiKeyAnswer(BaseModel):
    model_config = example(
        key_id="key-7r2d9f0h3j5k8l1zq",
        name="CI",
        description="Starts sandboxes for pull requests",
        prefix="sbk-9f3k",
        is_active=True,
        last_used_at=None,
        created_at="2026-10-30T09:00:00Z",
        updated_at="2026-10-30T09:00:00Z",
    )

    key_id: str
    name: str
    description: str | None
    prefix: str = Field(validation_alias="api_key", description="How the key begins")
    is_active: bool
    last_used_at: datetime | None = Field(description="To within five minutes")
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, key: AccountKey) -> Self:
        return cls.model_validate(key, from_attributes=True)


class NewApiKeyAnswer(BaseModel):
    model_config = example(
        key_id="key-7r2d9f0h3j5k8l1zq",
        api_key="sbk-9f3k2m5n8p1q4r7s0t3v6w9x2y5z8a1b4c7d0e3f",
        name="CI",
        description="Starts sandboxes for pull requests",
        created_at="2026-10-30T09:00:00Z",
    )

    key_id: str
    api_key: str = Field(description="Shown this once")
    name: str
    description: str | None
    created_at: datetime

    @classmethod
    def of(cls, key: AccountKey, api_key: str) -> Self:
        return cls(
            key_id=key.key_id,
            api_key=api_key,
            name=key.name,
            description=key.description,
            created_at=key.created_at,
        )


class ApiKeyPage(PageAnswer):
    api_keys: list[ApiKeyAnswer]
    next_cursor: str | None
