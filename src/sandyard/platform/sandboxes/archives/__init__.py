"""Stored files of sandboxes: snapshots and archives, their expiry and their storage cost."""
