"""A preview's status from the provider's response, without any I/O."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from sandyard.kit.changes.transitions import Cause, Transition, changed
from sandyard.kit.errors import UnavailableError
from sandyard.previews.errors import SandboxGoneError
from sandyard.previews.model import Preview, SandboxInfo, to_milliseconds

LAST_KNOWN_FOR = timedelta(minutes=5)
"""How long the last response is returned while the provider does not respond."""
RETRY_AFTER_SEC = 5
RECHECK_AFTER = timedelta(seconds=30)
"""A response equal to the last one is recorded only after this time."""


class PreviewStatus(StrEnum):
    RUNNING = "running"
    EXPIRED = "expired"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"


class ActionRequired(StrEnum):
    NONE = "none"
    SYNC_NEEDED = "sync_needed"
    RETRY_LATER = "retry_later"


ProviderAnswer = datetime | SandboxGoneError | UnavailableError | None
"""Until when the sandbox runs, that it has ended, or why the provider does not respond; None if it
was not asked."""


@dataclass(frozen=True, slots=True)
class StatusReport:
    """The response to a caller, and what to record."""

    status: PreviewStatus
    action: ActionRequired
    message: str
    info: SandboxInfo | None = None
    last_checked: datetime | None = None
    """When the provider last reported it."""
    error: UnavailableError | None = None
    """Why the provider did not respond."""

    @property
    def retry_after(self) -> int | None:
        """Seconds, if the caller should ask again."""
        if self.action is not ActionRequired.RETRY_LATER:
            return None
        known = None if self.error is None else self.error.retry_after
        return known or RETRY_AFTER_SEC

    @property
    def is_stale(self) -> bool:
        return self.error is not None and self.status is PreviewStatus.RUNNING


def report_status(preview: Preview, answer: ProviderAnswer, *, now: datetime) -> StatusReport:
    """An unavailable provider never means `expired`, because then a second sandbox would be
    created."""
    info, reported_at = preview.info, preview.reported_at
    if info is None or reported_at is None:
        message = "There is no preview yet."
        return StatusReport(PreviewStatus.NOT_FOUND, ActionRequired.SYNC_NEEDED, message)
    match answer:
        case datetime() as end_time if now < end_time:
            seen = replace(info, end_time=end_time, is_estimated=False)
            message = "The preview is running."
            return StatusReport(PreviewStatus.RUNNING, ActionRequired.NONE, message, seen, now)
        case UnavailableError() as error if now - reported_at < LAST_KNOWN_FOR:
            message = "The provider does not respond; this is its last known status."
            return StatusReport(
                PreviewStatus.RUNNING, ActionRequired.NONE, message, info, reported_at, error
            )
        case UnavailableError() as error:
            action = ActionRequired.RETRY_LATER
            return StatusReport(
                PreviewStatus.UNKNOWN, action, error.message, info, reported_at, error
            )
        case _:
            end_time = min(info.end_time, to_milliseconds(now))
            ended = replace(info, end_time=end_time, is_estimated=False)
            reason = answer.reason if isinstance(answer, SandboxGoneError) else ""
            message = f"The preview has ended. {reason}".rstrip()
            return StatusReport(
                PreviewStatus.EXPIRED, ActionRequired.SYNC_NEEDED, message, ended, now
            )


def record_check(
    preview: Preview, report: StatusReport, *, cause: Cause
) -> Transition[Preview] | None:
    """The change that the provider reports for the recorded sandbox; None if there is none."""
    before, now = preview.info, report.info
    if before is None or now is None or before.sandbox_id != now.sandbox_id or before == now:
        return None
    kind = "preview.ended" if report.status is PreviewStatus.EXPIRED else "preview.extended"
    return changed(preview, replace(preview, info=now), kind, cause)


def recheck_at(preview: Preview, report: StatusReport) -> datetime | None:
    """When the provider last reported the sandbox, if that should be recorded."""
    if report.error is not None or report.last_checked is None:
        return None
    last = preview.last_checked
    is_due = last is None or report.last_checked - last >= RECHECK_AFTER
    return report.last_checked if is_due else None
