"""Sizes are in bytes; where people say GB, of memory or of storage, they mean this many."""

GIGABYTE = 2**30
