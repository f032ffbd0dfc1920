"""The sequential model of one owner's leases: what a track is answered for one of its keys."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

EXTENSION_SEC = 60
CLAIMS = ("allocate", "wait", "queue")


@dataclass(frozen=True, slots=True)
class LeaseCall:
    """One request about the leases of one owner."""

    kind: str
    begin: float
    end: float
    """Infinite if nobody knows whether it was done."""
    status: int | None = None
    code: str = ""
    key: str = ""
    sandbox_id: str = ""
    is_stranger: bool = False
    answer: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def leased(self) -> str:
        return str(self.answer.get("sandbox_id", ""))

    @property
    def ends_at(self) -> int:
        return int(self.answer.get("expires_at") or 0)


@dataclass(frozen=True, slots=True)
class Leases:
    """What the owner has, and has had."""

    live: str = ""
    ends_at: int = 0
    keys: frozenset[str] = frozenset()
    """Of the extensions of the live lease."""
    past: frozenset[str] = frozenset()
    moved: frozenset[tuple[str, str]] = frozenset()
    """Sandboxes with those that have replaced them."""

    def has_had(self, sandbox_id: str) -> bool:
        return sandbox_id == self.live or sandbox_id in self.past

    def ended(self) -> "Leases":
        return replace(self, live="", keys=frozenset(), past=self.past | {self.live} - {""})

    def now_at(self, sandbox_id: str) -> str:
        """The sandbox to which the lease of this one has moved."""
        moved = dict(self.moved)
        while sandbox_id in moved:
            sandbox_id = moved[sandbox_id]
        return sandbox_id


@dataclass(frozen=True, slots=True)
class LeaseModel:
    """`told` are the sandboxes that the owner was ever told of, each with its earliest end."""

    told: dict[str, int]
    skew_sec: float = 0
    has_probes: bool = False
    """A lease whose sandbox fails its probe, and can't be replaced, is refused though it exists."""
    most_extensions: int | None = None
    """Of one lease: the next one makes it too long."""

    def step(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        """The states after the call. Time decides only what a lease's end allows: the call reads
        its clock at the earliest when it begins, and takes effect at `latest` at the latest."""
        states = [state]
        if state.live and latest + self.skew_sec >= state.ends_at:
            states.append(state.ended())
        for each in states:
            yield from self._step(each, call, latest)

    def _step(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        if call.status is None:
            yield from self._unanswered(state, call)
        elif call.is_stranger:
            if call.status in (403, 404):
                yield state
        elif call.kind in CLAIMS:
            yield from self._claimed(state, call, latest)
        elif call.code == "SANDBOX_NOT_FOUND" and call.sandbox_id in state.past:
            yield state  # one that was replaced, released and deleted leads to no other
        else:
            about = _ABOUT[call.kind]
            yield from about(self, state, call, latest)

    def _claimed(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        match call.status:
            case 201 if not state.live and not state.has_had(call.leased):
                yield _leased(state, call.leased, call.ends_at)
            case 200 if (state.live, state.ends_at) == (call.leased, call.ends_at):
                if call.begin - self.skew_sec < state.ends_at:
                    yield state
            case 409 if self.has_probes:
                yield state
                yield from self._unanswered(state, call)
            case 202 | 409 if not state.live or latest + self.skew_sec >= state.ends_at:
                yield state  # it may be over before its end is written down
            case 429:
                yield state

    def _marked(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        if call.status == 200 and state.has_had(call.sandbox_id):
            is_live = state.live and state.now_at(call.sandbox_id) == state.live
            yield state.ended() if is_live else state
        elif call.status == 403 and self._may_be_over(state, call, latest):
            yield state

    def _ended_by_operator(
        self, state: Leases, call: LeaseCall, _latest: float
    ) -> Iterator[Leases]:
        if call.status == 200:
            yield state.ended() if state.live == call.sandbox_id else state
        elif state.live != call.sandbox_id:
            yield state

    def _extended(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        is_live = state.live and state.now_at(call.sandbox_id) == state.live
        if call.status == 200:
            if not is_live or call.leased != state.live:
                return
            if call.key in state.keys:
                if call.ends_at == state.ends_at:
                    yield state
            elif (
                call.ends_at == state.ends_at + EXTENSION_SEC
                and len(state.keys) != self.most_extensions
                and call.begin - self.skew_sec < state.ends_at
            ):
                yield _extended(state, call.key)
        elif call.code == "LEASE_TOO_LONG":
            is_too_long = self.most_extensions in (None, len(state.keys))
            if is_live and call.key not in state.keys and is_too_long:
                yield state
        elif not is_live or self._may_be_over(state, call, latest):
            yield state

    def _replaced(self, state: Leases, call: LeaseCall, latest: float) -> Iterator[Leases]:
        is_live = state.live == call.sandbox_id
        if call.status == 200:
            if is_live and not state.has_had(call.leased) and call.ends_at == state.ends_at:
                yield _moved(state, call.leased)
            elif state.now_at(call.sandbox_id) == call.leased == state.live:
                yield state
        elif (
            call.code in ("NO_SANDBOXES_AVAILABLE", "REPLACEMENT_LIMIT")
            or not is_live
            or self._may_be_over(state, call, latest)
        ):
            yield state

    def _read(self, state: Leases, call: LeaseCall, _latest: float) -> Iterator[Leases]:
        is_live = bool(state.live) and state.now_at(call.sandbox_id) == state.live
        if call.status == 200:
            says_live = call.answer["status"] == "allocated"
            is_true = is_live and call.ends_at == state.ends_at
            if is_true if says_live else call.sandbox_id in state.past:
                yield state
        elif state.live != call.sandbox_id:
            yield state

    def _may_be_over(self, state: Leases, call: LeaseCall, latest: float) -> bool:
        """Refused because the lease is over, whether or not its end was written down."""
        is_over = not state.live or latest + self.skew_sec >= state.ends_at
        return call.code == "ALLOCATION_EXPIRED" and is_over

    def _unanswered(self, state: Leases, call: LeaseCall) -> Iterator[Leases]:
        """All that it may have done; the search knows that it may have done nothing."""
        is_live = bool(state.live) and state.now_at(call.sandbox_id) == state.live
        new = [each for each in self.told if not state.has_had(each)]
        if call.kind in CLAIMS and not state.live:
            yield from (_leased(state, each, self.told[each]) for each in new)
        elif call.kind == "replace" and state.live == call.sandbox_id:
            yield from (_moved(state, each) for each in new)
        elif call.kind == "extend" and is_live and call.key not in state.keys:
            yield _extended(state, call.key)
        elif (call.kind == "mark" and is_live and not call.is_stranger) or (
            call.kind in ("release", "hold") and state.live == call.sandbox_id
        ):
            yield state.ended()


def only_reads(call: LeaseCall) -> bool:
    """Whatever it finds, it changes nothing: it reads, or was refused."""
    if call.status is None:
        return False
    return call.kind == "get" or call.status >= 400 or (call.kind in CLAIMS and call.status == 200)


_ABOUT = {
    "mark": LeaseModel._marked,
    "release": LeaseModel._ended_by_operator,
    "hold": LeaseModel._ended_by_operator,
    "extend": LeaseModel._extended,
    "replace": LeaseModel._replaced,
    "get": LeaseModel._read,
}
ABOUT = tuple(_ABOUT)


def _leased(state: Leases, sandbox_id: str, ends_at: int) -> Leases:
    return replace(state, live=sandbox_id, ends_at=ends_at, keys=frozenset())


def _extended(state: Leases, key: str) -> Leases:
    return replace(state, ends_at=state.ends_at + EXTENSION_SEC, keys=state.keys | {key})


def _moved(state: Leases, sandbox_id: str) -> Leases:
    return replace(
        state,
        live=sandbox_id,
        past=state.past | {state.live},
        moved=state.moved | {(state.live, sandbox_id)},
    )
