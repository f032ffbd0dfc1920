"""Backs up a data dir to one file while it is in use, and restores it."""
