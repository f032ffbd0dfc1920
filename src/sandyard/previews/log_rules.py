"""What the events of a project's preview must never tell."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from sandyard.kit.changes.events import Event, Step, steps_of
from sandyard.kit.clock import utc_time

CLOCKS_DIFFER = timedelta(seconds=5)
"""Between servers, and between them and the provider."""


def broken_previews(events: Sequence[Event]) -> list[str]:
    """Never two attempts at once, and never two sandboxes."""
    return [each for step in steps_of(events) if step.before for each in _wrong_step(step)]


def _wrong_step(step: Step) -> Iterator[str]:
    before, after = step.before, step.after
    attempt, made = before.get("attempt"), after.get("info")
    if step.event.kind == "preview.requested" and attempt is not None:
        at = utc_time(step.event.at_ms / 1000)
        if at + CLOCKS_DIFFER < datetime.fromisoformat(attempt["until"]):
            yield f"is created by another attempt before the end of {attempt['id']}"
    if step.event.kind != "preview.created" or made is None:
        return
    if attempt is None or attempt["id"] != made["attempt"]:
        yield f"{made['sandbox_id']} was made by no attempt of its time"
    last = before.get("info")
    if last is not None and last["sandbox_id"] != made["sandbox_id"]:
        ended_at, began_at = (
            datetime.fromisoformat(text) for text in (last["end_time"], made["start_time"])
        )
        if ended_at > began_at + CLOCKS_DIFFER:
            yield f"{made['sandbox_id']} was made before the end of {last['sandbox_id']}"
