"""The Platform, wired from the settings."""

PREFIX = "/api/v1"
"""Here, where it is imported without the Platform."""
