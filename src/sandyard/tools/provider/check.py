"""Checks a provider's API: calls it as Sandyard does, and reports each deviation."""

import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

import httpx

from sandyard.broker.provider.client import DIALECTS, ProviderPolicy
from sandyard.broker.provider.errors import ProviderUnavailableError

UNKNOWN_ID = "00000000-0000-0000-0000-000000000000"
_LIST = {"generic": "/api/sandbox", "infoblox": "/current_user/accounts"}
_DELETE = {"generic": "/api/sandbox/{}", "infoblox": "/sandbox/accounts/{}"}
_CREATE = {"generic": "/api/sandbox"}
_ENTRIES = {"generic": ("sandboxes", ["id"]), "infoblox": ("results", ["id", "account_type"])}
"""The field with the entries of a list, and the fields that each must have."""
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


class ProviderCheck:
    def __init__(self, *, base_url: str, token: str, dialect: str, policy: ProviderPolicy) -> None:
        self._dialect = dialect
        self._scheme = DIALECTS[dialect].scheme
        self._timeout_sec = policy.read_timeout_sec
        self._provider = DIALECTS[dialect](base_url=base_url, token=token, policy=policy)
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"{self._scheme} {token}"},
            timeout=self._timeout_sec,
        )

    async def run(self, *, create: bool, delete_id: str | None) -> AsyncIterator[Finding]:
        """`create` creates and deletes a sandbox; `delete_id` deletes that one. Without them
        nothing changes at the provider."""
        async with self._http:
            async for finding in self._list():
                yield finding
            listed = await self._listed()
            yield await self._list_with_wrong_token()
            if listed and self._dialect == "generic":
                yield await self._get(min(listed), is_there=True)
                yield await self._get(UNKNOWN_ID, is_there=False)
            yield await self._delete_unknown()
            if create:
                async for finding in self._create_and_delete():
                    yield finding
            if delete_id is not None:
                async for finding in self._delete(delete_id, listed):
                    yield finding
        await self._provider.close()

    async def _list(self) -> AsyncIterator[Finding]:
        path = _LIST[self._dialect]
        call = f"GET {path}"
        started = time.perf_counter()
        listed = await self._listed()
        took = time.perf_counter() - started
        if listed is None:
            yield await self._finding(call, "GET", path, self._why_not)
            return
        yield Finding(call, "passed", f"{len(listed)} sandboxes")
        if took > _SLOW_SEC:
            yield Finding(call, "note", f"the whole list took {took:.1f} s")
        if not listed:
            yield Finding(call, "note", "the list is empty, so entries could not be checked")

    async def _listed(self) -> Mapping[str, str] | None:
        """Names by id, in the complete list, as Sandyard reads it; None if that fails."""
        try:
            return {each.external_id: each.name for each in await self._provider.list_sandboxes()}
        except ProviderUnavailableError:
            return None

    def _why_not(self, answer: httpx.Response) -> tuple[Verdict, str]:
        if answer.status_code != httpx.codes.OK:
            return "failed", f"returned {answer.status_code}, expected 200: {_shown(answer)}"
        try:
            body = answer.json()
        except ValueError:
            return "failed", f"the response is not JSON: {_shown(answer)}"
        mistake = _wrong_list(self._dialect, body)
        return "failed", mistake or "a later page of the list is invalid"

    async def _list_with_wrong_token(self) -> Finding:
        def judge(answer: httpx.Response) -> tuple[Verdict, str]:
            if answer.status_code in (401, 403):
                return "passed", f"refused with {answer.status_code}"
            return "note", f"returned {answer.status_code}: anybody can list the sandboxes"

        path, headers = _LIST[self._dialect], {"Authorization": f"{self._scheme} wrong"}
        return await self._finding(f"GET {path}, wrong token", "GET", path, judge, headers=headers)

    async def _get(self, external_id: str, *, is_there: bool) -> Finding:
        """The request of `PROBE=provider`; the other dialect reads its list instead."""

        def judge(answer: httpx.Response) -> tuple[Verdict, str]:
            wanted = "an existing" if is_there else "a missing"
            text = f"returned {answer.status_code} for {wanted} sandbox"
            if _is_gone_or_success(answer) and answer.is_success is is_there:
                return "passed", text
            return "note", f"{text}: do not set `PROBE=provider`"

        path = self._delete_path(external_id)
        return await self._finding(f"GET {path}", "GET", path, judge)

    async def _delete_unknown(self) -> Finding:
        def judge(answer: httpx.Response) -> tuple[Verdict, str]:
            if _is_gone_or_success(answer):
                return "passed", f"returned {answer.status_code} for a missing sandbox"
            why = "404 for a missing sandbox: a repeated deletion would count as failed"
            return "failed", f"returned {answer.status_code}, expected {why}"

        path = self._delete_path(UNKNOWN_ID)
        return await self._finding(f"DELETE {path}", "DELETE", path, judge)

    async def _create_and_delete(self) -> AsyncIterator[Finding]:
        path = _CREATE.get(self._dialect)
        if path is None:
            yield Finding("create", "note", f"not part of the dialect {self._dialect}")
            return
        name = f"sandyard-check-{secrets.token_hex(4)}"
        call = f"POST {path}"
        answer = await self._send(
            "POST", path, json={"name": name}, headers={"Idempotency-Key": name}
        )
        made = None if isinstance(answer, str) else _made_id(answer)
        yield Finding(call, *_judge_creation(answer, made))
        listed = await self._listed() or {}
        found = next((each for each, known_as in listed.items() if known_as == name), None)
        if made is not None and made in listed and found is None:
            yield Finding(call, "failed", f"the list names it {listed[made]!r}; {_BY_NAME}")
        elif made is not None and found is None:
            yield Finding(call, "note", "the list does not show it yet")
        if (there := made or found) is not None:
            async for finding in self._delete(there, {there: name}):
                yield finding

    async def _delete(
        self, external_id: str, listed: Mapping[str, str] | None
    ) -> AsyncIterator[Finding]:
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
            verdict: Verdict = "passed" if _is_gone_or_success(answer) else "failed"
            yield Finding(call, verdict, f"{wanted}: returned {answer.status_code}")
        if external_id in (await self._listed() or ()):
            yield Finding(call, "note", "still listed; Sandyard ignores it")

    def _delete_path(self, external_id: str) -> str:
        identity = external_id
        if self._dialect == "infoblox":
            identity = external_id.rsplit("/", 1)[-1]
        return _DELETE[self._dialect].format(quote(identity, safe=""))

    async def _finding(
        self,
        call: str,
        method: str,
        path: str,
        judge: Callable[[httpx.Response], tuple[Verdict, str]],
        **options: Any,
    ) -> Finding:
        answer = await self._send(method, path, **options)
        return Finding(call, *(("failed", answer) if isinstance(answer, str) else judge(answer)))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response | str:
        try:
            return await self._http.request(method, path, **options)
        except httpx.TimeoutException:
            return f"no response within {self._timeout_sec:g} s"
        except httpx.RequestError as error:
            return f"no response: {error or type(error).__name__}"


def _is_gone_or_success(answer: httpx.Response) -> bool:
    return answer.is_success or answer.status_code == httpx.codes.NOT_FOUND


def _wrong_list(dialect: str, body: Any) -> str | None:
    """What is wrong with the first page, at its first invalid entry."""
    name, wanted = _ENTRIES[dialect]
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


def _judge_creation(answer: httpx.Response | str, made: str | None) -> tuple[Verdict, str]:
    if isinstance(answer, str):
        return "failed", answer
    if made is not None:
        return "passed", f"created {made}"
    if answer.status_code in _NO_SUCH_CALL:
        return "note", f"can't create: returned {answer.status_code}"
    if answer.is_success:
        return "failed", f"returned {answer.status_code}, expected a string `id`: {_shown(answer)}"
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
