"""What a release without sequences goes by, so that it can serve beside this one.

0.1.0 changes a sandbox without counting its sequence up. So long as one may run, a change is
compared by these too, as 0.1.0 itself compares: each of its own changes is seen in one of them.
"""

GUARDED = ("status", "stale_reason", "allocated_at", "deletion_requested_at")
