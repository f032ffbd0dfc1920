"""Claims and `/healthz` over HTTP beside the bare frameworks."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.bare_app import bare_server
from benchmarks.broker_server import ROWS, filled_server, port_of, require_only_new_leases
from benchmarks.load import CONNECTIONS, INSTALL_WRK, Slice, Target, has_wrk, measure_slice
from benchmarks.report import Figure, Measured, Say

_ROUNDS = 5
_SLICE_SEC = 2
_WARM_UP_SEC = 1
_LEAST_CLAIMS = 0.8
_LEAST_HEALTH = 0.5

_CLAIM, _HEALTH, _FASTAPI, _STARLETTE = "claim", "healthz", "fastapi", "starlette"
_CLAIM_RATIO = f"claims ÷ bare FastAPI over HTTP, SQLite, {CONNECTIONS} connections"
_HEALTH_RATIO = "/healthz ÷ bare Starlette"
_RATES = {
    _CLAIM: "  claims per second, and the server's CPU time for one",
    _HEALTH: "  /healthz",
    _FASTAPI: "  bare FastAPI",
    _STARLETTE: "  bare Starlette",
}


def measure(folder: Path, say: Say) -> Measured:
    if not has_wrk():
        say(f"{INSTALL_WRK}\n")  # it stays when the next line comes
        lines = [_CLAIM_RATIO, _HEALTH_RATIO, *_RATES.values()]
        return Measured([Figure.not_measured(line, "no wrk") for line in lines])
    say("http: filling the pool and starting the servers")
    with ExitStack() as stack:
        server = stack.enter_context(filled_server(folder))
        ours = partial(Target, port_of(server), server.process.pid, token=server.track_token)
        slices = _alternate(
            {
                _HEALTH: ours("GET", "/healthz"),
                _CLAIM: ours("POST", "/v1/allocate"),
                _FASTAPI: stack.enter_context(bare_server(_FASTAPI)),
                _STARLETTE: stack.enter_context(bare_server(_STARLETTE)),
            },
            folder,
            say,
        )
        require_only_new_leases(server)
    return Measured(_figures(slices), f"http {ROWS:,}")


def _alternate(targets: Mapping[str, Target], folder: Path, say: Say) -> dict[str, list[Slice]]:
    """A slice of each target in turn, round after round, so that drift meets them all alike."""
    for name, target in targets.items():
        measure_slice(target, _WARM_UP_SEC, label=f"{name}-warm-up", folder=folder)
    slices: dict[str, list[Slice]] = {name: [] for name in targets}
    for number in range(1, _ROUNDS + 1):
        say(f"http: round {number} of {_ROUNDS}")
        for name, target in targets.items():
            label = f"{name}-{number}"
            slices[name].append(measure_slice(target, _SLICE_SEC, label=label, folder=folder))
    return slices


def _figures(slices: Mapping[str, list[Slice]]) -> list[Figure]:
    claims = _ratios(slices[_CLAIM], slices[_FASTAPI])
    health = _ratios(slices[_HEALTH], slices[_STARLETTE])
    return [
        Figure.at_least(_CLAIM_RATIO, claims, _LEAST_CLAIMS),
        Figure.at_least(_HEALTH_RATIO, health, _LEAST_HEALTH),
        *(Figure(text, _describe(slices[name])) for name, text in _RATES.items()),
    ]


def _ratios(ours: Sequence[Slice], theirs: Sequence[Slice]) -> list[float]:
    """Of neighbouring slices."""
    return [one.per_second / other.per_second for one, other in zip(ours, theirs, strict=True)]


def _describe(slices: Sequence[Slice]) -> str:
    per_second = median(each.per_second for each in slices)
    cpu_usec = median(each.cpu_usec for each in slices)
    return f"{per_second:,.0f}/s, {cpu_usec:.0f} µs"
