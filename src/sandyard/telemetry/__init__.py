"""Telemetry: registers devices and keeps each of their readings exactly once."""
