"""Telemetry's doors: keys, bodies and parameters in, use cases called, JSON and files out."""
