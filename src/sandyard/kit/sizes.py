"""Sizes are in bytes; where people say GB, of memory or of storage, they mean this many."""

GIGABYTE = 2**30

MESSAGE_BYTES = 16 * 2**20
"""The largest message of a WebSocket."""
