"""Makers of the ids that sandboxes, their usages and notifications get."""

from dataclasses import dataclass
from functools import partial

from sandyard.kit.ids import IdMaker, resource_id
from sandyard.platform.sandboxes.runs.model import NewIds

_sandbox_id = partial(resource_id, "sbx")
_usage_id = partial(resource_id, "usg")
_notification_id = partial(resource_id, "not")


@dataclass(frozen=True, slots=True)
class SandboxIds:
    sandbox: IdMaker = _sandbox_id
    usage: IdMaker = _usage_id
    notification: IdMaker = _notification_id

    def new(self) -> NewIds:
        return NewIds(self.usage(), self.notification(), self.usage())
