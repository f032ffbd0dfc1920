"""The attributes that a release without sequences compares, so that it can run alongside this one.

0.1.0 changes a sandbox without incrementing its sequence. As long as one may run, changes are also
compared by these, as 0.1.0 itself does: each of its changes affects one of them.
"""

GUARDED = ("status", "stale_reason", "allocated_at", "deletion_requested_at")
