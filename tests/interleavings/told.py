"""The events of each subject in a searched world, as the rules of `sandyard verify` take them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from sandyard.kit.changes.events import Effect, Event
from sandyard.kit.changes.transitions import Entity, state_of, subject_of


def told(first: Iterable[Entity], log: Sequence[Event]) -> Mapping[str, list[Event]]:
    """What was there at first, as a full state each, and all that was written since."""
    found: dict[str, list[Event]] = defaultdict(list)
    for each in first:
        subject = subject_of(each)
        full = Event("there", subject, each.sequence, "system", 0, Effect.FULL, state_of(each))
        found[subject].append(full)
    for event in log:
        found[event.subject].append(event)
    return found
