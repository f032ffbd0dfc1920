"""Measures and enforces a machine's limits, in its supervisor."""
