"""A data dir in one file, and back: what it holds, written while it is in use."""
