"""All interleavings of syncs, stops, jobs and deletions of a project's preview, with one crash and
one lost answer. `-s` prints the size of each scope."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from sandyard.kit.changes.transitions import Cause
from sandyard.kit.clock import utc_time
from sandyard.previews.log_rules import broken_previews
from sandyard.previews.model import (
    Attempt,
    Preview,
    Quota,
    RunningPreviews,
    SandboxInfo,
    begin_attempt,
    record_sandbox,
)
from tests.interleavings.explorer import Actor, Explored, Scope, View, explore
from tests.interleavings.previews import (
    ACCOUNT,
    ATTEMPT_SEC,
    PROJECT,
    TTL_SEC,
    Call,
    Made,
    PreviewsWorld,
    program,
)
from tests.interleavings.told import told

NOW = 1_800_000_000
OVER = NOW + ATTEMPT_SEC + 1
ENDED = NOW + TTL_SEC
CAUSE = Cause("account:1", NOW * 1000)
EMPTY = PreviewsWorld()


def requested() -> Preview:
    quota = Quota(3, RunningPreviews(ACCOUNT, utc_time(NOW), frozenset()))
    attempt = Attempt("first", utc_time(NOW + ATTEMPT_SEC))
    new = Preview(PROJECT, ACCOUNT, utc_time(0))
    return begin_attempt(new, attempt, quota=quota, cause=CAUSE).result


def running() -> Preview:
    info = SandboxInfo("first", "", utc_time(NOW), utc_time(ENDED), "first")
    made = record_sandbox(requested(), info, checked_at=utc_time(NOW), cause=CAUSE)
    assert made is not None
    return made.result


FIRST = frozenset([Made("first", NOW, ENDED)])
RUNS = PreviewsWorld(running(), FIRST)
UNRECORDED = PreviewsWorld(requested(), FIRST)
"""Who made it has died, or has not had the answer yet."""


def does(name: str, call: Call) -> Actor:
    return Actor(name, program(call, actor=name))


def syncs(name: str) -> Actor:
    return does(name, lambda it: it.sync())


def job(name: str) -> Actor:
    return does(name, lambda it: it.ending.run_over_running())


STOP = does("stop", lambda it: it.stop())
DELETE = does("delete", lambda it: it.delete())
AFTERWARDS = tuple(
    program(lambda it: it.ending.run_over_running(), actor=f"afterwards-{n}") for n in range(2)
)


def sound(first: PreviewsWorld, view: View[PreviewsWorld]) -> list[str]:
    """Never two at once; and when all is quiet, what runs is recorded, and is wanted."""
    world = view.world
    problems = [
        f"{one.attempt} and {other.attempt} run at once"
        for one, other in pairwise(sorted(world.sandboxes, key=lambda each: each.began_at))
        if other.began_at < one.ends_at and one.began_at < other.ends_at
    ]
    there = [first.preview] if first.preview is not None else []
    for events in told(there, world.log).values():
        problems += broken_previews(events)
    if view.is_over:
        preview = world.preview
        problems += [
            f"{each.attempt} runs, and nobody needs it"
            for each in world.running(view.now)
            if world.is_deleted or preview is None or not preview.has_sandbox(each.attempt)
        ]
        if preview is not None and preview.attempt is not None:
            problems.append(f"the attempt {preview.attempt.id} has no outcome")
    return problems


def scope(
    name: str, first: PreviewsWorld, actors: Sequence[Actor], times: Sequence[int] = (NOW,)
) -> Scope[PreviewsWorld]:
    return Scope(
        name,
        first,
        tuple(actors),
        tuple(times),
        lambda view: sound(first, view),
        afterwards=AFTERWARDS,
        afterwards_at=times[-1] + ATTEMPT_SEC + 11,
    )


def scopes(*, is_large: bool) -> list[Scope[PreviewsWorld]]:
    third = [STOP] if is_large else []
    return [
        scope("two syncs of a project without a preview", EMPTY, [syncs("a"), syncs("b"), *third]),
        scope("a sync and a stop of what runs", RUNS, [syncs("a"), STOP]),
        scope("a sync around the end, and the job", RUNS, [syncs("a"), job("job")], (NOW, ENDED)),
        scope(
            "an attempt whose caller has died, a sync and the job",
            UNRECORDED,
            [syncs("a"), job("job")],
            (NOW, OVER),
        ),
        scope("a sync, and the deletion of its project", EMPTY, [syncs("a"), DELETE, job("job")]),
        scope("the deletion of a project whose preview runs", RUNS, [DELETE, job("job"), STOP]),
    ]


def check(explored: Explored) -> None:
    print(explored)  # noqa: T201 - the size of the space, with -s
    assert explored.problems == [], "\n".join([*explored.trace, *explored.problems])


@pytest.mark.parametrize("scope", scopes(is_large=False), ids=lambda scope: scope.name)
def test_no_interleaving_breaks_a_promise(scope: Scope[PreviewsWorld]) -> None:
    check(explore(scope))


@pytest.mark.torture
@pytest.mark.timeout(600)
@pytest.mark.parametrize("scope", scopes(is_large=True), ids=lambda scope: scope.name)
def test_no_interleaving_of_a_larger_scope_breaks_a_promise(scope: Scope[PreviewsWorld]) -> None:
    check(explore(scope))


def test_a_store_that_does_not_compare_is_found() -> None:
    [both, *_] = scopes(is_large=False)
    found = explore(replace(both, world=replace(EMPTY, compares=False), crashes=0, losses=0))
    assert found.problems
    assert found.trace
