"""Checks a provider's API: calls it as Sandyard does, and reports each deviation."""

import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import httpx

from sandyard.broker.pool.model import Listed
from sandyard.broker.provider.client import DIALECTS, HttpProvider, ProviderPolicy
from sandyard.broker.provider.errors import ProviderUnavailableError

UNKNOWN_ID = "00000000-0000-0000-0000-000000000000"
_LIST = {"generic": "/api/sandbox", "infoblox": "/current_user/accounts"}
_DELETE = {"generic": "/api/sandbox/{}", "infoblox": "/sandbox/accounts/{}"}
_CREATE = {"generic": "/api/sandbox"}
_SLOW_SEC = 2.0
_NO_SUCH_CALL = (404, 405)
_BY_NAME = "after a lost response it is found by its name, and would be created again"

Verdict = Literal["passed", "failed", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one call."""

    call: str
    verdict: Verdict
    text: str


@dataclass(frozen=True, slots=True)
class Target:
    base_url: str
    token: str
    dialect: str
    policy: ProviderPolicy

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"{DIALECTS[self.dialect].scheme} {self.token}"}

    def provider(self) -> HttpProvider:
        return HttpProvider(
            base_url=self.base_url, token=self.token, dialect=self.dialect, policy=self.policy
        )


class ProviderCheck:
    """`create` creates and deletes a sandbox; `delete_id` deletes that one. Without them nothing
    changes at the provider."""

    def __init__(
        self, target: Target, *, create: bool = False, delete_id: str | None = None
    ) -> None:
        self._target = target
        self._create = create
        self._delete_id = delete_id
        timeout = target.policy.read_timeout_sec
        self._http = httpx.AsyncClient(
            base_url=target.base_url, headers=dict(target.headers), timeout=timeout
        )

    async def run(self) -> AsyncIterator[Finding]:
        async with self._http:
            async for finding in self._list():
                yield finding
            listed = await self._ids()
            yield await self._wrong_token()
            if listed and self._target.dialect == "generic":
                yield await self._get(min(listed), is_there=True)
                yield await self._get(UNKNOWN_ID, is_there=False)
            yield await self._delete_unknown()
            if self._create:
                async for finding in self._create_and_delete():
                    yield finding
            if self._delete_id is not None:
                async for finding in self._delete(self._delete_id, listed):
                    yield finding

    async def _list(self) -> AsyncIterator[Finding]:
        path = _LIST[self._target.dialect]
        call = f"GET {path}"
        started = time.perf_counter()
        ids = await self._ids()
        took = time.perf_counter() - started
        if ids is None:
            yield Finding(call, "failed", await self._why_not(path))
            return
        yield Finding(call, "passed", f"{len(ids)} sandboxes")
        if took > _SLOW_SEC:
            yield Finding(call, "note", f"the whole list took {took:.1f} s")
        if not ids:
            yield Finding(call, "note", "the list is empty, so entries could not be checked")

    async def _ids(self) -> set[str] | None:
        listed = await self._listed()
        return None if listed is None else {each.external_id for each in listed}

    async def _names(self) -> Mapping[str | None, str]:
        """Names by id."""
        return {each.external_id: each.name for each in await self._listed() or ()}

    async def _listed(self) -> Sequence[Listed] | None:
        """The complete list, as Sandyard reads it; None if that fails."""
        provider = self._target.provider()
        try:
            return await provider.list_sandboxes()
        except ProviderUnavailableError:
            return None
        finally:
            await provider.close()

    async def _why_not(self, path: str) -> str:
        answer = await self._send("GET", path)
        if isinstance(answer, str):
            return answer
        if answer.status_code != httpx.codes.OK:
            return f"returned {answer.status_code}, expected 200: {_shown(answer)}"
        try:
            body = answer.json()
        except ValueError:
            return f"the response is not JSON: {_shown(answer)}"
        return _wrong_list(self._target.dialect, body) or "a later page of the list is invalid"

    async def _wrong_token(self) -> Finding:
        path = _LIST[self._target.dialect]
        scheme = DIALECTS[self._target.dialect].scheme
        answer = await self._send("GET", path, headers={"Authorization": f"{scheme} wrong"})
        call = f"GET {path}, wrong token"
        if isinstance(answer, str):
            return Finding(call, "failed", answer)
        if answer.status_code in (401, 403):
            return Finding(call, "passed", f"refused with {answer.status_code}")
        return Finding(
            call, "note", f"returned {answer.status_code}: anybody can list the sandboxes"
        )

    async def _get(self, external_id: str, *, is_there: bool) -> Finding:
        """The request of `PROBE=provider`; the other dialect reads its list instead."""
        path = self._delete_path(external_id)
        answer = await self._send("GET", path)
        call = f"GET {path}"
        if isinstance(answer, str):
            return Finding(call, "failed", answer)
        asked = "an existing" if is_there else "a missing"
        text = f"returned {answer.status_code} for {asked} sandbox"
        is_known = answer.is_success or answer.status_code == httpx.codes.NOT_FOUND
        if is_known and answer.is_success is is_there:
            return Finding(call, "passed", text)
        return Finding(call, "note", f"{text}: do not set `PROBE=provider`")

    async def _delete_unknown(self) -> Finding:
        path = self._delete_path(UNKNOWN_ID)
        answer = await self._send("DELETE", path)
        call = f"DELETE {path}"
        if isinstance(answer, str):
            return Finding(call, "failed", answer)
        if answer.status_code == httpx.codes.NOT_FOUND or answer.is_success:
            return Finding(call, "passed", f"returned {answer.status_code} for a missing sandbox")
        why = "404 for a missing sandbox: a repeated deletion would count as failed"
        return Finding(call, "failed", f"returned {answer.status_code}, expected {why}")

    async def _create_and_delete(self) -> AsyncIterator[Finding]:
        path = _CREATE.get(self._target.dialect)
        if path is None:
            yield Finding("create", "note", f"not part of the dialect {self._target.dialect}")
            return
        name = f"sandyard-check-{secrets.token_hex(4)}"
        call = f"POST {path}"
        answer = await self._send(
            "POST", path, json={"name": name}, headers={"Idempotency-Key": name}
        )
        made = None if isinstance(answer, str) else _made_id(answer)
        yield Finding(call, *_judged(answer, made))
        listed = await self._names()
        found = next((each for each, known_as in listed.items() if known_as == name), None)
        if made in listed and found is None:
            yield Finding(call, "failed", f"the list names it {listed[made]!r}; {_BY_NAME}")
        elif made is not None and found is None:
            yield Finding(call, "note", "the list does not show it yet")
        if (there := made or found) is not None:
            async for finding in self._delete(there, {there}):
                yield finding

    async def _delete(self, external_id: str, listed: set[str] | None) -> AsyncIterator[Finding]:
        path = self._delete_path(external_id)
        call = f"DELETE {path}"
        if listed is not None and external_id not in listed:
            yield Finding(call, "failed", "the list has no such id; nothing was deleted")
            return
        for wanted in ("deleted", "deleted again"):
            answer = await self._send("DELETE", path)
            if isinstance(answer, str):
                yield Finding(call, "failed", answer)
                return
            is_fine = answer.is_success or answer.status_code == httpx.codes.NOT_FOUND
            verdict: Verdict = "passed" if is_fine else "failed"
            yield Finding(call, verdict, f"{wanted}: returned {answer.status_code}")
        left = await self._ids()
        if left is not None and external_id in left:
            yield Finding(call, "note", "still listed; Sandyard ignores it")

    def _delete_path(self, external_id: str) -> str:
        identity = external_id
        if self._target.dialect == "infoblox":
            identity = external_id.rsplit("/", 1)[-1]
        return _DELETE[self._target.dialect].format(quote(identity, safe=""))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response | str:
        """The response, or why there is none."""
        try:
            return await self._http.request(method, path, **options)
        except httpx.TimeoutException:
            return f"no response within {self._target.policy.read_timeout_sec:g} s"
        except httpx.RequestError as error:
            return f"no response: {error or type(error).__name__}"


def _wrong_list(dialect: str, body: Any) -> str | None:
    """What is wrong with the first page, at its first invalid entry."""
    name, wanted = (
        ("sandboxes", ("id",))
        if dialect == "generic"
        else (
            "results",
            ("id", "account_type"),
        )
    )
    if not isinstance(body, dict) or not isinstance(body.get(name), list):
        return f"the response must be an object with a list `{name}`"
    for number, entry in enumerate(body[name]):
        for each in wanted:
            value = entry.get(each) if isinstance(entry, dict) else None
            if not isinstance(value, str) or not value:
                return f"`{name}[{number}].{each}` must be a non-empty string"
    cursor = body.get("next_cursor")
    if dialect == "generic" and cursor is not None and not isinstance(cursor, str | int):
        return "`next_cursor` must be a string, a number or null"
    return None


def _judged(answer: httpx.Response | str, made: str | None) -> tuple[Verdict, str]:
    """The verdict on the response to a creation."""
    if isinstance(answer, str):
        return "failed", answer
    if made is not None:
        return "passed", f"created {made}"
    if answer.status_code in _NO_SUCH_CALL:
        return "note", f"can't create: returned {answer.status_code}"
    if answer.is_success:
        wanted = "a string `id`"
        return "failed", f"returned {answer.status_code}, expected {wanted}: {_shown(answer)}"
    return "failed", f"returned {answer.status_code}, expected 201: {_shown(answer)}"


def _made_id(answer: httpx.Response) -> str | None:
    try:
        body = answer.json() if answer.is_success else None
    except ValueError:
        return None
    made = body.get("id") if isinstance(body, dict) else None
    return made if isinstance(made, str) and made else None


def _shown(answer: httpx.Response) -> str:
    return repr(answer.text[:80])
