"""Telemetry, wired from the settings."""
