"""A sandbox in each of its states, and who changes it, for tests of decisions."""

from sandyard.broker.pool.action_model import Action, decide_action
from sandyard.broker.pool.model import Claim, Listed, Sandbox, decide_claim
from sandyard.broker.pool.provider_model import decide_discovery
from sandyard.kit.changes.transitions import Cause, Transition

NOW = 1_000_000
HOUR = 3600


def cause(now: int = NOW, actor: str = "operator") -> Cause:
    return Cause(actor, now * 1000 + 999)


def told(transition: Transition[Sandbox]) -> tuple[str, str, str | None]:
    [event] = transition.events
    return event.kind, event.actor, event.reason


FREE = decide_discovery(Listed("e1", "lab"), lab_duration_hours=1, cause=cause()).result
LEASED = decide_claim(FREE, Claim("t", "k", NOW, track_name="intro")).result
PENDING = decide_action(LEASED, Action.RELEASE, cause()).result
STALE = decide_action(FREE, Action.QUARANTINE, cause()).result
