"""What the events, usages and bills of a sandbox must never tell is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from sandyard.kit.changes.events import Event
from sandyard.kit.changes.transitions import Cause, Transition, created
from sandyard.kit.clock import utc_time
from sandyard.platform.billing.model import Bill, bill_usage
from sandyard.platform.events.log_rules import broken_runs, broken_usages
from sandyard.platform.sandboxes.model import ApprovedStart, Sandbox, Status
from sandyard.platform.sandboxes.runs.end_model import End
from sandyard.platform.sandboxes.runs.model import (
    Accounting,
    NewIds,
    Started,
    record_end,
    record_started,
)
from sandyard.platform.usage.model import PriceList, Usage

NOW = 1_800_000_000
PRICES = PriceList(Decimal("0.1"), Decimal("0.02"), Decimal("0.001"))
MADE = Sandbox("sbx-1", "one", None, "tpl", "acc", "prj", 1, 1, 3600, utc_time(0), utc_time(0))


class Life:
    """A sandbox as the decisions make it; each call is an hour after the one before."""

    def __init__(self) -> None:
        self.hour = 0
        first = created(MADE, "sandbox.created", self.cause())
        self.sandbox, self.events = first.result, list(first.events)
        self.usages: dict[str, Usage] = {}
        self.bills: list[Bill] = []

    def cause(self) -> Cause:
        self.hour += 1
        return Cause("system", (NOW + 3600 * self.hour) * 1000)

    def apply(self, *made: Transition[Any]) -> None:
        for each in made:
            self.events += [event for event in each.events if event.subject == "sbx-1"]
            match each.result:
                case Sandbox() as sandbox:
                    self.sandbox = sandbox
                case Usage() as usage:
                    self.usages[usage.usage_id] = usage
                case Bill() as bill:
                    self.bills.append(bill)

    def start(self) -> None:
        approved = ApprovedStart(self.sandbox, (None, None))
        self.apply(approved.begin(node="n", cause=self.cause()))

    def run(self) -> None:
        cause = self.cause()
        run = Started(self.sandbox.attempt, "", cause.at, cause.at + timedelta(days=2))
        made = record_started(self.sandbox, run, Accounting(self.ids(), PRICES, cause))
        self.apply(*(made or ()))

    def end(self) -> None:
        cause = self.cause()
        usage = next((each for each in self.usages.values() if each.end_time is None), None)
        end = End(self.sandbox.attempt, Status.STOPPED, "its program ended", cause.at)
        made = record_end(self.sandbox, usage, end, Accounting(self.ids(), PRICES, cause))
        self.apply(*(made or ()))

    def bill(self) -> None:
        for usage in list(self.usages.values()):
            self.apply(*bill_usage(usage, (), new_id=lambda: "bil-1", cause=self.cause()))

    def ids(self) -> NewIds:
        return NewIds(f"usg-{self.hour}", "not", "sto")

    def problems(self) -> list[str]:
        usages = list(self.usages.values())
        return [
            *broken_runs(self.events),
            *broken_usages(self.sandbox, self.events, usages, self.bills),
        ]


def lived(*calls: str) -> Life:
    life = Life()
    for call in calls:
        getattr(life, call)()
    return life


@pytest.mark.parametrize(
    "calls",
    ["", "start", "start run", "start end", "start run end bill", "start run end start run bill"],
)
def test_what_the_decisions_make_is_no_problem(calls: str) -> None:
    assert lived(*calls.split()).problems() == []


def without(kind: str) -> Callable[[Sequence[Event]], list[Event]]:
    return lambda events: [each for each in events if each.kind != kind]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (without("sandbox.stopped"), "began attempt 2 before the end of attempt 1"),
        (without("sandbox.starting"), "attempt 0 was started while it was created"),
        (lambda events: [replace(each, reason=None) for each in events], "ended without a reason"),
        (lambda events: [*events, events[1]], "began attempt 1 before the end of attempt 2"),
        (lambda events: [*events[:4], events[2], *events[4:]], "running after its end"),
    ],
)
def test_what_no_run_can_be_is_found(
    change: Callable[[Sequence[Event]], list[Event]], problem: str
) -> None:
    life = lived(*["start", "run", "end", "start", "run"])
    assert problem in " ".join(broken_runs(change(life.events)))


def _changed(life: Life, **values: Any) -> None:
    [usage] = life.usages.values()
    life.usages[usage.usage_id] = replace(usage, **values)


def _again(life: Life) -> None:
    [usage] = life.usages.values()
    life.usages["usg-again"] = replace(usage, usage_id="usg-again", is_billed=False)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda life: _changed(life, end_time=None), "has 1 open usages"),
        (lambda life: _changed(life, end_time=utc_time(NOW + 10**6)), "lasts longer than its run"),
        (lambda life: _changed(life, cost=Decimal(7)), "costs 7 for another time"),
        (_again, "usg-again begins before the end of"),
        (lambda life: life.bills.append(replace(life.bills[0], billing_id="b")), "is billed twice"),
        (lambda life: life.bills.clear(), "and its bills are 0"),
        (lambda life: life.usages.clear(), "which does not exist"),
        (
            lambda life: life.bills.append(replace(life.bills[0], corrects="another")),
            "corrects a bill of another usage or day",
        ),
    ],
)
def test_a_usage_or_a_bill_that_does_not_fit_is_found(
    change: Callable[[Life], None], problem: str
) -> None:
    life = lived(*["start", "run", "end", "bill"])
    change(life)
    assert problem in " ".join(life.problems())
