"""Volumes of accounts: files that outlive sandboxes."""
