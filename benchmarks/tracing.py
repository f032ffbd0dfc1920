"""What traces cost: the server's CPU time for a claim, with OpenTelemetry on and off."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.broker_server import filled_server, port_of, require_only_new_leases
from benchmarks.load import CONNECTIONS, Slice, Target, has_wrk, measure_slice
from benchmarks.report import Figure, Measured, Say
from tests.support.services.otlp_collector import Collector, collecting

_ROUNDS = 5
_SLICE_SEC = 2
_WARM_UP_SEC = 2
_MOST = 1.10
_ROWS = 80_000
_OFF, _SAMPLED, _ALL = "off", "1 %", "100 %"
_RATIO = f"CPU of a claim over HTTP, SQLite, {CONNECTIONS} connections, traced"


def measure(folder: Path, say: Say) -> Measured:
    if not has_wrk():
        return Measured([Figure.not_measured(_RATIO, "no wrk")])
    say("tracing: filling three pools and starting the servers")
    with ExitStack() as stack:
        collector = stack.enter_context(collecting())
        shares = {_OFF: None, _SAMPLED: "0.01", _ALL: "1"}
        targets = {}
        for name, share in shares.items():
            environment = _environment(collector, share)
            server = stack.enter_context(
                filled_server(folder / (share or _OFF), environment, rows=_ROWS)
            )
            token = server.track_token
            targets[name] = Target(
                port_of(server), server.process.pid, "POST", "/v1/allocate", token
            )
            stack.callback(require_only_new_leases, server)
        slices = _alternate(targets, folder, say)
    if not collector.spans:
        raise RuntimeError("the collector received nothing; the ratio means nothing")
    return Measured(_figures(slices), f"tracing {_ROWS:,} in each of three")


def _environment(collector: Collector, share: str | None) -> dict[str, str]:
    if share is None:
        return {}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_TRACES_SAMPLER_ARG": share}


def _alternate(targets: Mapping[str, Target], folder: Path, say: Say) -> dict[str, list[Slice]]:
    slices: dict[str, list[Slice]] = {name: [] for name in targets}
    for number in range(_ROUNDS + 1):
        say(f"tracing: round {number} of {_ROUNDS}")
        for index, (name, target) in enumerate(targets.items()):
            seconds = _SLICE_SEC if number else _WARM_UP_SEC
            taken = measure_slice(target, seconds, label=f"{index}-{number}", folder=folder)
            if number:  # the first round warms up
                slices[name].append(taken)
    return slices


def _figures(slices: Mapping[str, list[Slice]]) -> list[Figure]:
    def ratio(name: str) -> float:
        pairs = zip(slices[name], slices[_OFF], strict=True)
        return median(on.cpu_usec / off.cpu_usec for on, off in pairs)

    return [
        Figure.at_most(f"{_RATIO} at {_SAMPLED} ÷ untraced", ratio(_SAMPLED), _MOST),
        Figure(f"  the same at {_ALL}", f"{ratio(_ALL):.2f}"),
        Figure("  CPU of a claim, untraced", f"{_cpu(slices[_OFF]):.0f} µs"),
    ]


def _cpu(slices: list[Slice]) -> float:
    return median(each.cpu_usec for each in slices)
