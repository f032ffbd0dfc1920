"""Operators' calls for clients of the Broker."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import AwareDatetime, BeforeValidator, Field, StrictInt

from sandyard.broker.clients.model import Client, ClientScope, Limits, SentToken
from sandyard.broker.clients.service import Clients, TokenUse
from sandyard.broker.http import Operator, operator_routes
from sandyard.kit.http.routes import Check
from sandyard.kit.http.schemas import (
    AS_JSON_HAS_IT,
    AttributesAnswer,
    Documented,
    PageAnswer,
    Paging,
    StrictBody,
    eg,
    inline,
)
from sandyard.kit.patterns import pattern

CLIENT_NAME = pattern(
    r"^[a-z0-9][a-z0-9-]{0,62}$", "must be 1 to 63 lower-case letters, digits and -"
)
TRACK_PREFIX = pattern(
    r"^[A-Za-z0-9._:-]{0,128}$", "must be up to 128 letters, digits, ., _, : and -"
)


_RATE = pattern(r"^[1-9][0-9]{0,8}/(second|minute|hour|day)$", "must be like 100/minute")

ClientName = Annotated[str, Path(pattern=CLIENT_NAME, description="The client's name")]
TokenId = Annotated[str, Path(description="The token's id, from the list of clients")]


def _no_number(value: object) -> object:
    """Numbers are rejected: they could be seconds or years."""
    if isinstance(value, int | float):
        raise ValueError("must be a time such as 2027-01-01T00:00:00Z")  # noqa: TRY004 - becomes a 400
    return value


_Expires = Annotated[
    AwareDatetime | None,
    BeforeValidator(_no_number),
    Field(description="When the token expires; default: never"),
]


class ClientLimitsBody(StrictBody):
    scopes: list[Annotated[ClientScope, inline(ClientScope)]] = eg(
        ["allocate"], min_length=1, max_length=4, description="Scopes of the client"
    )
    track_prefix: str = eg(
        "acme-", "", pattern=TRACK_PREFIX, description="Required prefix of its track ids"
    )
    rate: Annotated[str, Field(pattern=_RATE)] | None = eg(
        "100/minute", None, description="Rate limit of its calls, such as `100/minute`"
    )
    max_leases: Annotated[StrictInt, Field(ge=1, le=1_000_000), AS_JSON_HAS_IT] | None = eg(
        300, None, description="Maximum number of leases"
    )

    @property
    def limits(self) -> Limits:
        return Limits(self.scopes, self.track_prefix, self.rate, self.max_leases)


class ClientBody(ClientLimitsBody):
    name: str = eg("acme", pattern=CLIENT_NAME)
    expires_at: _Expires = eg(None, None)


class ClientTokenBody(StrictBody):
    expires_at: _Expires = eg("2126-12-31T00:00:00Z", None)


class NewClientTokenAnswer(Documented):
    name: str = eg("acme")
    token_id: str = eg("3k9x0v7q2m5n")
    token: str = eg(
        "sbc-acme.3k9x0v7q2m5n.Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmE",
        description="Send it as `Authorization: Bearer …`; shown only once",
    )

    @classmethod
    def of(cls, token: SentToken) -> Self:
        return cls(name=token.client, token_id=token.token_id, token=token.text)


class ClientTokenAnswer(AttributesAnswer):
    token_id: str = eg("3k9x0v7q2m5n")
    created_at: datetime = eg("2026-11-16T12:00:00Z")
    expires_at: datetime | None
    last_used_at: datetime | None = eg("2026-11-16T12:05:00Z", description="To within five minutes")


class ClientAnswer(Documented):
    name: str = eg("acme")
    scopes: list[str] = eg(["allocate"])
    track_prefix: str = eg("acme-")
    rate: str | None = eg("100/minute")
    max_leases: int | None = eg(300)
    created_at: datetime = eg("2026-11-16T12:00:00Z")
    tokens: list[ClientTokenAnswer]

    @classmethod
    def of(cls, found: tuple[Client, Sequence[TokenUse]]) -> Self:
        client, uses = found
        shown = {"name": client.name, "scopes": client.scopes.split(",")}
        tokens = [ClientTokenAnswer.of(each) for each in uses]
        return cls.model_validate(asdict(client) | shown | {"tokens": tokens})


class ClientList(PageAnswer):
    clients: list[ClientAnswer]
    next_cursor: str | None


def create_client_router(clients: Clients, check: Check, *, prefix: str) -> APIRouter:
    routes = operator_routes(f"{prefix}/admin/clients", check)

    @routes.post("", "Create a client", 409, status_code=201)
    async def create_client(body: ClientBody, operator: Operator) -> NewClientTokenAnswer:
        """Returns the client with its first token."""
        expires_at = _seconds(body.expires_at)
        return NewClientTokenAnswer.of(
            await clients.create(body.name, body.limits, expires_at=expires_at, by=operator)
        )

    @routes.get("", "List clients")
    async def list_clients(paging: Paging) -> ClientList:
        """By name, with the ids and last uses of their tokens, never with a token."""
        return ClientList.of(await clients.page(**paging), ClientAnswer.of)

    @routes.get("/{name}", "Get a client", 404)
    async def get_client(name: ClientName) -> ClientAnswer:
        """With the ids and last uses of its tokens."""
        return ClientAnswer.of(await clients.get(name))

    @routes.put("/{name}", "Change a client", 404)
    async def change_client(
        name: ClientName, body: ClientLimitsBody, operator: Operator
    ) -> ClientAnswer:
        """Takes effect in every process within half a minute. Omitted fields are removed."""
        await clients.change(name, body.limits, by=operator)
        return ClientAnswer.of(await clients.get(name))

    @routes.delete("/{name}", "Delete a client", 404, status_code=204)
    async def delete_client(name: ClientName, operator: Operator) -> None:
        """Its tokens are refused within half a minute; its leases stay until they end."""
        await clients.delete(name, by=operator)

    @routes.post("/{name}/tokens", "Add a token to a client", 404, 409, status_code=201)
    async def add_client_token(
        name: ClientName, body: ClientTokenBody, operator: Operator
    ) -> NewClientTokenAnswer:
        """To replace a token: add a new one, hand it out, then revoke the old one."""
        expires_at = _seconds(body.expires_at)
        return NewClientTokenAnswer.of(
            await clients.add_token(name, expires_at=expires_at, by=operator)
        )

    @routes.delete("/{name}/tokens/{token_id}", "Revoke a client's token", 404, status_code=204)
    async def revoke_client_token(name: ClientName, token_id: TokenId, operator: Operator) -> None:
        """Takes effect in every process within half a minute."""
        await clients.revoke_token(name, token_id, by=operator)

    return routes.router


def _seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())
