"""Shared, bounded and background work."""
