"""What no pool's events may tell is found, and nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from sandyard.broker.log_rules import PoolRules
from sandyard.kit.changes.events import Effect, Event

FREE = {"status": "available", "allocated_to_track": None, "idempotency_key": None}
MINE = {"status": "allocated", "allocated_to_track": "mine", "idempotency_key": "k"}
GONE = {"status": "pending_deletion"}
MINUTE = 60_000


def told(subject: str, *steps: tuple[int, str, dict[str, Any] | None]) -> list[Event]:
    """The first with the whole state; without data it is removed."""
    events = []
    for number, (at_ms, kind, data) in enumerate(steps):
        effect = Effect.PARTIAL if number else Effect.FULL
        effect = Effect.REMOVED if data is None else effect
        about = (kind, subject, number + 1, "system", at_ms, effect, data or {})
        events.append(Event(*about, reason=None if kind == "lease.lost" else "a reason"))
    return events


def sandbox(subject: str, *steps: tuple[int, str, dict[str, Any] | None]) -> list[Event]:
    return told(subject, (0, "sandbox.discovered", {**FREE, "name": subject}), *steps)


def ticket(number: int, at_ms: int, *steps: tuple[int, str], **others: Any) -> list[Event]:
    made = {"ticket_id": f"t{number}", "track_id": f"track-{number}", "urgency": 3}
    made |= {"name_prefix": "", "created_at": at_ms // 1000, "sandbox_id": None} | others
    later = [
        (at, f"ticket.{kind}", {"sandbox_id": "a"} if kind == "ready" else None)
        for at, kind in steps
    ]
    return told(f"t{number}", (at_ms, "ticket.created", made), *later)


def problems(*subjects: Sequence[Event]) -> list[str]:
    rules = PoolRules(ticket_ttl_sec=600)
    alone = [f"{events[0].subject} {each}" for events in subjects for each in rules.add(events)]
    return [*alone, *(f"{each.subject} {each.message}" for each in rules.across())]


LEASED = (10, "lease.created", MINE)
ENDED = (MINUTE, "lease.ended", GONE)
SERVED = ((2 * MINUTE, "ready"), (3 * MINUTE, "served"))


@pytest.mark.parametrize(
    "subjects",
    [
        pytest.param([sandbox("a", LEASED, ENDED)], id="one lease"),
        pytest.param(
            [sandbox("a", LEASED, ENDED), sandbox("b", (MINUTE - 900, "lease.created", MINE))],
            id="the next one by a clock that is behind",
        ),
        pytest.param(
            [sandbox("a", LEASED, ENDED), sandbox("b", (9, "lease.created", MINE))],
            id="the next one by a claim that took a minute",
        ),
        pytest.param(
            [
                sandbox("a", LEASED, (8, "lease.replaced", {"status": "held"})),
                sandbox("b", (9, "lease.created", MINE), ENDED),
            ],
            id="one that was replaced at once, by a clock that is behind",
        ),
        pytest.param([ticket(1, 0, *SERVED), ticket(2, 9)], id="the first is served first"),
        pytest.param([ticket(1, 0), ticket(2, 9, *SERVED, urgency=1)], id="a more urgent one"),
        pytest.param([ticket(1, 0, name_prefix="x"), ticket(2, 9, *SERVED)], id="wants another"),
        pytest.param(
            [ticket(1, 0), ticket(2, 9, (11 * MINUTE, "ready"))], id="it may have stopped asking"
        ),
        pytest.param(
            [ticket(1, 0, (2 * MINUTE + 1, "ready")), ticket(2, 9, *SERVED)], id="at the same time"
        ),
        pytest.param(
            [
                sandbox(
                    "a", (9, "sandbox.reserved", {"reserved_for": "t2", "reservation_id": "r"})
                ),
                ticket(1, 0),
                ticket(2, 9, *SERVED),
            ],
            id="a sandbox of a reservation",
        ),
    ],
)
def test_what_may_be_is_no_problem(subjects: list[list[Event]]) -> None:
    assert problems(*subjects) == []


@pytest.mark.parametrize(
    ("subjects", "problem"),
    [
        ([sandbox("a", LEASED, ENDED, (2 * MINUTE, "lease.created", MINE))], "leased twice"),
        (
            [sandbox("a", (5, "sandbox.stale", {"status": "stale"}), LEASED)],
            "was leased while it was stale",
        ),
        (
            [sandbox("a", LEASED, (20, "sandbox.synced", {"allocated_to_track": "other"}))],
            "passed from mine to other without a lease",
        ),
        (
            [
                sandbox("a", LEASED, (2 * MINUTE, "lease.ended", GONE)),
                sandbox("b", (MINUTE // 2, "lease.created", MINE)),
            ],
            "had b for the same key k before its end",
        ),
        ([sandbox("a", LEASED), sandbox("b", (MINUTE, "lease.created", MINE))], "a mine had b"),
        (
            [sandbox("a", LEASED, (MINUTE, "lease.lost", GONE))],
            "lost mine's lease without a reason",
        ),
        ([ticket(1, 0), ticket(2, 9, *SERVED)], "t1 was passed by t2"),
        ([ticket(1, 0, (5 * MINUTE, "ready")), ticket(2, 9, *SERVED)], "t1 was passed by t2"),
    ],
)
def test_what_can_not_be_is_found(subjects: list[list[Event]], problem: str) -> None:
    assert problem in " ".join(problems(*subjects))
