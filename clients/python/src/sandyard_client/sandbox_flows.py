"""Sandboxes of an account and their commands, as flows."""

import asyncio
import base64
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sandyard_client.calls import Calls, chunks, consumed, emitted, without_none
from sandyard_client.decoding import decode
from sandyard_client.errors import (
    ApiError,
    ConfigurationError,
    ConflictError,
    ConnectionFailedError,
    NotFoundError,
    SandyardClientError,
    UnavailableError,
    UncertainOutcomeError,
)
from sandyard_client.models import AccessTokenAnswer, SandboxAnswer
from sandyard_client.operations import listed, perform
from sandyard_client.server_events import ServerEvents
from sandyard_client.steps import Emit, Flow, Sleep, Stream
from sandyard_client.wire import Credential, Request

ATTEMPT = "sandyard-client-attempt"
"""The metadata key with the idempotency key of the call that created the sandbox."""
_START_SEC = 600.0
_LOOKS = 3
_LOOK_AGAIN_SEC = 0.5
_SILENCE_SEC = 60.0
_KILL_SEC = 5.0
_SETTLE_SEC = 15.0


class OverTimeError(Exception):
    """The command's time is over; what it wrote was told up to `offset`."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended; 128 plus the number of the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A chunk of a command's output."""

    stream: str
    text: str


@dataclass(frozen=True, slots=True)
class CommandBytes:
    """The same as bytes, for output that is not text."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True)
class CommandWish:
    command: str | Sequence[str]
    env: Mapping[str, str] | None = None
    folder: str | None = None
    user: str | None = None
    has_input: bool = False

    def body(self, tag: str) -> dict[str, Any]:
        line = self.command if isinstance(self.command, str) else list(self.command)
        wished = {"env": self.env, "folder": self.folder, "user": self.user}
        told = {"command": line, "background": True, "tag": tag, "has_input": self.has_input}
        return {**told, **without_none(wished)}


def about(
    method: str, path: str, *, repeatable: bool = True, json: Any = None, **more: Any
) -> Request:
    """A call with the account's credential."""
    path = f"/api/v1{path}"
    return Request(method, path, Credential.ACCOUNT, is_repeatable=repeatable, json=json, **more)


def template_id(calls: Calls, template: str) -> Flow[str]:
    """The id of a template, given its id or its name; official ones take precedence."""
    if template.startswith("tpl-"):
        return template
    listing = about("GET", "/templates", query={"q": template, "limit": 100})
    found = yield from emitted(calls.pages(listing, "templates"))
    named = [each for each in found if each["name"] == template]
    if not named:
        raise NotFoundError(404, "TEMPLATE_UNKNOWN", f"There is no template {template}.")
    named.sort(key=lambda each: not each["is_official"])
    return str(named[0]["template_id"])


def create(calls: Calls, template: str, body: Mapping[str, Any]) -> Flow[SandboxAnswer]:
    """One sandbox, however many responses are lost: the call has an idempotency key, which is in
    its metadata too, so that one whose creator gave up is found and deleted."""
    key = str(uuid.uuid4())
    metadata = {**(body.get("metadata") or {}), ATTEMPT: key}
    chosen = yield from template_id(calls, template)
    whole = {**without_none(body), "template_id": chosen, "metadata": metadata}
    try:
        answer = yield from perform(calls, "create_sandbox", whole, key)
    except BaseException as error:
        if not isinstance(error, ApiError) or error.may_be_done or error.status >= 500:
            yield from _given_up(calls.within(_SETTLE_SEC), body["name"], key, error)
        raise
    return decode(SandboxAnswer, answer)


def _given_up(calls: Calls, name: str, key: str, cause: BaseException) -> Flow[None]:
    """Delete the sandbox that a call without a response may have created."""
    if isinstance(cause, ConfigurationError) or not getattr(cause, "was_sent", True):
        return
    try:
        found = yield from emitted(listed(calls, "list_sandboxes", {"q": name, "limit": 100}))
        for each in found:
            if each["metadata"].get(ATTEMPT) == key:
                yield from recycle(calls, each["sandbox_id"])
    except SandyardClientError as error:
        cause.add_note(f"Whether there is a sandbox {name} now is not known ({error}).")


def create_started(calls: Calls, template: str, body: Mapping[str, Any]) -> Flow[SandboxAnswer]:
    """A running sandbox, or none."""
    sandbox = yield from create(calls, template, body)
    try:
        return (yield from start(calls, sandbox.sandbox_id))
    except BaseException as error:
        try:
            yield from recycle(calls, sandbox.sandbox_id)
        except SandyardClientError as failure:
            error.add_note(f"{sandbox.sandbox_id} is left behind: {failure}")
        raise


def get(calls: Calls, sandbox_id: str) -> Flow[SandboxAnswer]:
    return decode(SandboxAnswer, (yield from calls.json(about("GET", f"/sandboxes/{sandbox_id}"))))


def start(calls: Calls, sandbox_id: str, *, program: bool = True) -> Flow[SandboxAnswer]:
    """Idempotent: concurrent and repeated calls start one machine, with its program unless that is
    not wanted. Returns when it is no longer `starting`: the server itself waits for a minute."""
    path, body = f"/sandboxes/{sandbox_id}/start", None if program else {"program": False}
    request, until = about("POST", path, json=body, timeout_sec=_START_SEC), calls.until(_START_SEC)
    while True:
        made = decode(SandboxAnswer, (yield from calls.within(_START_SEC).json(request)))
        if made.status != "starting" or calls.clock() >= until:
            return made
        yield Sleep(_LOOK_AGAIN_SEC)


def stop(calls: Calls, sandbox_id: str, *, memory: bool | None = None) -> Flow[SandboxAnswer]:
    """With its processes if `memory`; None is as the sandbox says."""
    path, body = f"/sandboxes/{sandbox_id}/stop", without_none({"memory": memory}) or None
    request = about("POST", path, json=body, timeout_sec=_START_SEC)
    return decode(SandboxAnswer, (yield from calls.json(request)))


def recycle(calls: Calls, sandbox_id: str) -> Flow[None]:
    """Delete it permanently; not an error if it is already deleted."""
    request = about("DELETE", f"/sandboxes/{sandbox_id}", timeout_sec=_START_SEC)
    try:
        yield from calls.call(request)
    except NotFoundError:
        return
    except ConflictError as error:
        if error.code != "SANDBOX_RECYCLED":
            raise


def link(
    calls: Calls, sandbox_id: str, *, port: int | None, minutes: int
) -> Flow[AccessTokenAnswer]:
    body = without_none({"port": port, "minutes": minutes})
    request = about("POST", f"/sandboxes/{sandbox_id}/tokens", json=body)
    return decode(AccessTokenAnswer, (yield from calls.json(request)))


def start_command(calls: Calls, sandbox_id: str, wish: CommandWish) -> Flow[str]:
    """Returns its id. It is started at most once: the call has an idempotency key. If a server died
    in between, the command is looked up by its tag; UncertainOutcomeError if it is not found."""
    tag = f"client-{uuid.uuid4().hex}"
    body = {"sandbox_id": sandbox_id, **wish.body(tag)}
    try:
        answer = yield from perform(calls, "run_command", body)
        return str(answer["command_id"])
    except (ConflictError, UnavailableError, ConnectionFailedError) as error:
        if not _is_unknown(error):
            raise
        for _ in range(_LOOKS):
            known = yield from calls.json(about("GET", f"/sandboxes/{sandbox_id}/commands"))
            for each in known["commands"]:
                if each["tag"] == tag:
                    return str(each["command_id"])
            yield Sleep(_LOOK_AGAIN_SEC)
        raise UncertainOutcomeError(f"{error} It may have been started.") from error


def _is_unknown(error: SandyardClientError) -> bool:
    """Whether the command may have been started all the same."""
    if isinstance(error, ApiError):
        return error.code == "OUTCOME_UNKNOWN" or error.may_be_done
    return getattr(error, "was_sent", False)


def snapshot(calls: Calls, sandbox_id: str, name: str | None) -> Flow[str]:
    request = Request(
        "POST",
        f"/e2b/sandboxes/{sandbox_id}/snapshots",
        Credential.ACCOUNT,
        is_repeatable=True,
        headers={"Idempotency-Key": str(uuid.uuid4())},
        json=without_none({"name": name}),
        timeout_sec=_START_SEC,
    )
    return str((yield from calls.json(request))["snapshotID"])


def follow(
    calls: Calls,
    sandbox_id: str,
    command_id: str,
    *,
    until: float | None = None,
    offset: int = 0,
    as_bytes: bool = False,
) -> Flow[int]:
    """Emits the command's output until it ends, as CommandOutput or CommandBytes, and returns its
    exit code. After a lost connection it continues where it was, so nothing is missing or repeated.
    OverTimeError with the offset when the time is over."""
    encoding = {"encoding": "base64"} if as_bytes else {}
    while True:
        left = _SILENCE_SEC if until is None else until - calls.clock()
        if left <= 0:
            raise OverTimeError(offset)
        stream = yield from calls.open(
            about(
                "GET",
                f"/sandboxes/{sandbox_id}/commands/{command_id}/output",
                query={"follow": True, "offset": offset, **encoding},
                timeout_sec=min(_SILENCE_SEC, left),
            )
        )
        events = ServerEvents()
        while (piece := (yield from _next_piece(stream))) is not None:
            for event in events.feed(piece):
                if event.kind == "exit":
                    return int(event.data["exit_code"])
                if event.kind == "ended":  # the next call returns the reason
                    continue
                offset = int(event.id)
                yield Emit(_output(event.kind, event.data["data"], as_bytes=as_bytes))
            if until is not None and calls.clock() >= until:
                raise OverTimeError(offset)
        yield Sleep(calls.policy.first_delay_sec)


def _output(stream: str, data: str, *, as_bytes: bool) -> CommandOutput | CommandBytes:
    if as_bytes:
        return CommandBytes(stream, base64.b64decode(data))
    return CommandOutput(stream, data)


def _next_piece(stream: Stream) -> Flow[bytes | None]:
    """None also if interrupted: the output is then requested again."""
    try:
        return (yield from chunks(stream))
    except ConnectionFailedError:
        return None


def command_about(
    sandbox_id: str, command_id: str, method: str = "GET", action: str = "", json: Any = None
) -> Request:
    return about(method, f"/sandboxes/{sandbox_id}/commands/{command_id}{action}", json=json)


def run(
    calls: Calls,
    sandbox_id: str,
    wish: CommandWish,
    *,
    timeout_sec: float | None,
    on_output: Callable[[CommandOutput], object] | None,
) -> Flow[CommandResult]:
    """Run a command to its end, or kill its process group when its time is over."""
    command_id = yield from start_command(calls, sandbox_id, wish)
    return (
        yield from wait(calls, sandbox_id, command_id, timeout_sec=timeout_sec, on_output=on_output)
    )


def wait(
    calls: Calls,
    sandbox_id: str,
    command_id: str,
    *,
    timeout_sec: float | None,
    on_output: Callable[[CommandOutput], object] | None,
) -> Flow[CommandResult]:
    """Its result at its end, or when its time is over and its process group is killed."""
    until = None if timeout_sec is None else calls.until(timeout_sec)
    pieces: list[CommandOutput] = []

    def take(output: CommandOutput) -> None:
        pieces.append(output)
        if on_output is not None:
            on_output(output)

    try:
        whole = follow(calls, sandbox_id, command_id, until=until)
        exit_code, timed_out = (yield from consumed(whole, take)), False
    except OverTimeError as over:
        yield from calls.call(command_about(sandbox_id, command_id, "DELETE"))
        rest = follow(calls, sandbox_id, command_id, offset=over.offset)
        exit_code, timed_out = (yield from consumed(rest, take)), True
    except (KeyboardInterrupt, asyncio.CancelledError):
        yield from calls.within(_KILL_SEC).call(command_about(sandbox_id, command_id, "DELETE"))
        raise
    return CommandResult(exit_code, _joined(pieces, "stdout"), _joined(pieces, "stderr"), timed_out)


def _joined(pieces: Sequence[CommandOutput], stream: str) -> str:
    return "".join(piece.text for piece in pieces if piece.stream == stream)
