"""The queue: tickets that wait for a sandbox, and who gets one that becomes free."""
