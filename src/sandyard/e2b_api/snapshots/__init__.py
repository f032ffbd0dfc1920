"""Snapshots and forks of running sandboxes."""
