"""Sizes are in bytes; GB, of memory or of storage, means this many."""

GIGABYTE = 2**30

MESSAGE_BYTES = 16 * 2**20
"""The largest message of a WebSocket, or of a stream from a machine."""
