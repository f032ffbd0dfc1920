"""Probes: when a sandbox that fails them leaves the pool, and when it comes back. No I/O."""

from dataclasses import replace

from sandyard.broker.pool.model import FREE, Lease, Sandbox, StaleReason, Status, seconds_of
from sandyard.kit.changes.transitions import Cause, Transition, changed

RECOVERED = "its probe passes again"
UNPROBED_SEC = 60
"""How long after its start a lease may still be unknown to its track, because its claim is being
probed or its server died."""


def is_probed(row: Sandbox) -> bool:
    """Free sandboxes, and those that a probe has quarantined; not those that an operator has."""
    if row.status in FREE:
        return True
    by_probe = row.stale_reason is StaleReason.QUARANTINED and row.probe_failures > 0
    return row.status is Status.STALE and by_probe


def decide_probed(
    row: Sandbox, failure: str | None, *, threshold: int, cause: Cause
) -> Transition[Sandbox] | None:
    """The result of a passed probe, or of one that failed for this reason; None if nothing
    changes."""
    if not is_probed(row):
        return None
    if failure is None:
        return _passed(row, cause)
    if row.status is Status.STALE:
        return None
    failures = row.probe_failures + 1
    why = cause.because(f"probe: {failure}")
    if failures < threshold:
        after = replace(row, probe_failures=failures)
        return changed(row, after, "probe.failed", why)
    stale = row.made_stale(StaleReason.QUARANTINED, seconds_of(cause), why=why.reason)
    after = replace(stale, probe_failures=failures)
    return changed(row, after, "sandbox.quarantined", why)


def may_be_unprobed(lease: Lease, *, now: float) -> bool:
    """Whether its track may not have received it yet. Older leases were received, or the caller has
    long given up; leases made without a probe are left alone."""
    return now < lease.allocated_at + UNPROBED_SEC


def decide_passed_at_claim(row: Sandbox, cause: Cause) -> Transition[Sandbox]:
    """Its track may receive the lease; from now on no probe takes it away."""
    return changed(row, replace(row, probed_at=seconds_of(cause)), "lease.probed", cause)


def _passed(row: Sandbox, cause: Cause) -> Transition[Sandbox] | None:
    if row.status is Status.STALE:
        after = row.made_available(seconds_of(cause))
        return changed(row, after, "sandbox.restored", cause.because(RECOVERED))
    if not row.probe_failures:
        return None
    return changed(row, replace(row, probe_failures=0), "probe.passed", cause)
