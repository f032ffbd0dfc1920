"""All interleavings of starts, stops, deadlines, silent nodes and adoption, with one crash and one
lost answer. `-s` prints the size of each scope."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sandyard.kit.changes.transitions import Cause, created
from sandyard.kit.clock import utc_time
from sandyard.platform.events.log_rules import broken_runs, broken_usages
from sandyard.platform.sandboxes.model import ApprovedStart, Sandbox, Status
from sandyard.platform.sandboxes.runs.model import Accounting, NewIds, Started, record_started
from sandyard.platform.usage.model import Usage
from sandyard.runtime.model import RunId, Running
from tests.interleavings.explorer import Actor, Change, Explored, Scope, View, explore
from tests.interleavings.runs import (
    OWNER,
    PRICES,
    PROJECT,
    RUN_SEC,
    SILENT_SEC,
    Call,
    Machine,
    RunsWorld,
    program,
)
from tests.interleavings.told import told

NOW = 1_800_000_000
DEADLINE = NOW + RUN_SEC
LATE = DEADLINE + SILENT_SEC + 1
_BEGINNING_SEC = 16
"""After this an attempt that its node does not know is lost."""
_LOST = "lost with its machine's state"
CAUSE = Cause("operator", NOW * 1000)
ID = "sbx-00000000000000001"
RUN = RunId("sandbox", ID, "1")
CREATED = created(
    Sandbox(
        *(ID, "one", None, "tpl-1", OWNER.account_id, PROJECT.project_id, 1, 1, RUN_SEC),
        created_at=utc_time(NOW),
        updated_at=utc_time(NOW),
    ),
    "sandbox.created",
    CAUSE,
).result


def running() -> tuple[Sandbox, Usage]:
    approved = ApprovedStart(CREATED, (PROJECT, None))
    starting = approved.begin(node="one", cause=CAUSE).result
    run = Started(1, "", utc_time(NOW), utc_time(DEADLINE))
    ids = NewIds("usg-0", "not-0", "usg-storage")
    made = record_started(starting, run, Accounting(ids, PRICES, CAUSE))
    assert made is not None
    return made[0].result, made[1].result


FRESH = RunsWorld(frozenset([CREATED]))
MACHINE = Machine("one", Running(RUN, 8080, NOW, DEADLINE))
RUNS = RunsWorld(frozenset(running()), frozenset([MACHINE]))


def starts(actor: str, node: str = "one") -> Actor:
    return Actor(actor, program(lambda it: it.start(ID), node=node, actor=actor))


def does(actor: str, call: Call, node: str = "one") -> Actor:
    return Actor(actor, program(call, node=node, actor=actor))


def stops(actor: str) -> Actor:
    return does(actor, lambda it: it.sandboxes.stop(ID, by=OWNER))


def moves(actor: str) -> Actor:
    return does(actor, lambda it: it.deadlines.set(ID, DEADLINE + 30, by=OWNER))


def ends(actor: str, node: str = "one") -> Actor:
    return does(actor, lambda it: it.reconcile.collect_ends(), node)


AFTERWARDS = (
    program(lambda it: it.reconcile.run(), actor="afterwards"),
    program(lambda it: it.reconcile.run(), actor="at last"),
)


def sound(first: RunsWorld, view: View[RunsWorld]) -> list[str]:
    """What holds in every state: the rules of `sandyard verify`, and each attempt once."""
    world = view.world
    events = told(first.entries, world.log)
    problems = [
        f"{each.state.run_id} was started twice" for each in world.machines if each.starts > 1
    ]
    for sandbox in world.sandboxes:
        of_sandbox = events[sandbox.sandbox_id]
        problems += broken_runs(of_sandbox)
        problems += broken_usages(sandbox, of_sandbox, world.usages, ())
    return problems + (_as_it_is(view) if view.is_over else [])


def _as_it_is(view: View[RunsWorld]) -> list[str]:
    """After the jobs, what runs is recorded, and what is recorded runs."""
    machines = [each.at(view.now) for each in view.world.machines]
    runs = {each.state.run_id.attempt for each in machines if isinstance(each.state, Running)}
    [sandbox] = view.world.sandboxes
    recorded = {str(sandbox.attempt)} if sandbox.status is Status.RUNNING else set()
    problems = [] if runs == recorded else [f"{runs} run, and {recorded} is recorded"]
    return problems + (["starting for ever"] if sandbox.status is Status.STARTING else [])


def no_end_unseen(change: Change[RunsWorld]) -> list[str]:
    """No end is recorded of a machine that runs; but an attempt that its node does not know may
    begin after it was asked, and is stopped then."""
    before = {each.sandbox_id: each for each in change.before.sandboxes}
    return [
        f"{sandbox.sandbox_id} is recorded as ended ({sandbox.status_reason}), and runs"
        for sandbox in change.after.sandboxes
        if before[sandbox.sandbox_id].is_active and not sandbox.is_active
        if (before[sandbox.sandbox_id].status, sandbox.status_reason) != (Status.STARTING, _LOST)
        for machine in change.before.machines
        if machine.state.run_id.attempt == str(sandbox.attempt)
        and isinstance(machine.state, Running)
        and machine.state.deadline_at > change.after.log[-1].at_ms / 1000
    ]


def scope(
    name: str,
    first: RunsWorld,
    actors: Sequence[Actor],
    times: Sequence[int] = (NOW,),
) -> Scope[RunsWorld]:
    return Scope(
        name,
        first,
        tuple(actors),
        tuple(times),
        lambda view: sound(first, view),
        no_end_unseen,
        afterwards=AFTERWARDS,
        afterwards_at=times[-1] + _BEGINNING_SEC,
    )


def scopes(*, is_large: bool) -> list[Scope[RunsWorld]]:
    third = [stops("c")] if is_large else []
    last = [ends("ends")] if is_large else []
    return [
        scope("two starts at once", FRESH, [starts("a"), starts("b"), *third]),
        scope("a start and a stop", FRESH, [starts("a"), stops("b"), *third]),
        scope(
            "a slow start, its adoption, and what is taken for lost",
            FRESH,
            [starts("a"), ends("ends")],
            (NOW, NOW + _BEGINNING_SEC),
        ),
        scope("a stop and a deadline that is moved", RUNS, [stops("a"), moves("b"), *last]),
        scope(
            "a deadline that is moved, and the end",
            RUNS,
            [moves("b"), ends("ends")],
            (NOW, DEADLINE),
        ),
        scope(
            "a silent node that comes back, and another that ends what is overdue",
            RUNS,
            [ends("one"), ends("two", "two")],
            (NOW, LATE),
        ),
        scope(
            "an overdue run of a silent node, and a new start",
            RUNS,
            [ends("two", "two"), starts("a")],
            (NOW, LATE),
        ),
        scope(
            "a stop and a start again",
            RUNS,
            [stops("a"), starts("b"), *last],
        ),
    ]


def check(explored: Explored) -> None:
    print(explored)  # noqa: T201 - the size of the space, with -s
    assert explored.problems == [], "\n".join([*explored.trace, *explored.problems])


@pytest.mark.parametrize("scope", scopes(is_large=False), ids=lambda scope: scope.name)
def test_no_interleaving_breaks_a_promise(scope: Scope[RunsWorld]) -> None:
    check(explore(scope))


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scope", scopes(is_large=True), ids=lambda scope: scope.name)
def test_no_interleaving_of_a_larger_scope_breaks_a_promise(scope: Scope[RunsWorld]) -> None:
    check(explore(scope))


def test_a_store_that_does_not_compare_is_found() -> None:
    [both, *_] = scopes(is_large=False)
    found = explore(replace(both, world=replace(FRESH, compares=False), crashes=0, losses=0))
    assert any("before the end of attempt" in each for each in found.problems)
    assert found.trace
