"""A change of the files of a sandbox that does not run, without any I/O."""

from dataclasses import replace

from sandyard.kit.changes.transitions import changed
from sandyard.platform.sandboxes.errors import SandboxChangedError
from sandyard.platform.sandboxes.model import Sandbox
from sandyard.platform.sandboxes.runs import model
from sandyard.platform.sandboxes.runs.end_model import StoredSnapshot


def store_files(
    sandbox: Sandbox,
    snapshot: StoredSnapshot,
    *,
    replaces: str | None,
    node: str,
    accounting: model.Accounting,
) -> model.Transitions:
    """The files of one that does not run were changed. Raises SandboxChangedError if a run has
    begun with those before, or they were replaced meanwhile."""
    if sandbox.is_active or sandbox.latest_snapshot_id != replaces:
        raise SandboxChangedError(
            "The sandbox was started, or its files were replaced, during this call: they are as if"
            " it had not been made. Try again."
        )
    cause = accounting.cause
    stored = replace(model.with_snapshot(sandbox, snapshot, taken_at=cause.at), updated_at=cause.at)
    return model.together(
        changed(sandbox, replace(stored, node=node), "snapshot.replaced", cause),
        model.storage_now(sandbox, accounting),
    )
