"""Readings have the time when they arrived."""

oldest_code = "0002"
"""What it stores has no such time."""
